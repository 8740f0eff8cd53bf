"""The command line, also as `python -m selective_backprop`: it needs an extra, and says so."""

import sys
from importlib.util import find_spec

from selective_backprop._core.errors import installing

# What the extra installs; looked for first, since some is imported after hours of training.
LAB = "sklearn", "scipy", "threadpoolctl", "PIL", "typer", "rich", "matplotlib", "jinja2", "pandas"


def main() -> int | None:
    """Run the lab's command line; return its exit status, or 1 without the lab's packages."""
    missing = [name for name in LAB if find_spec(name) is None]
    if missing:
        print(
            "selective-backprop: the command line needs packages that are not installed: "
            f"{', '.join(missing)}. Install the lab with: {installing('lab')}",
            file=sys.stderr,
        )
        return 1
    from selective_backprop_lab.cli import main as cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
