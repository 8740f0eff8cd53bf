"""The command line, also as `python -m selective_backprop`: it needs an extra, and says so."""

import sys

from selective_backprop._core.errors import installing


def main() -> int | None:
    """Run the lab's command line.

    Returns:
        An exit status: 1 where the lab's packages are not installed, else the command's own.
    """
    try:
        from selective_backprop.lab.cli import main as cli
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("selective_backprop"):
            raise
        print(
            f"selective-backprop: the command line needs {missing.name!r}, which is not "
            f"installed. Install the lab with: {installing('lab')}",
            file=sys.stderr,
        )
        return 1
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
