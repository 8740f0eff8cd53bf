"""Check that an adapter's framework is installed and new enough."""

import re
from importlib.metadata import PackageNotFoundError, version

from selective_backprop._core.errors import ConfigurationError, installing


def require(framework: str, needed: str) -> None:
    """Refuse a framework that is missing, or older than the adapter needs.

    The error names what was found, what is needed and what to do.

    Args:
        framework: its name on the package index, which is also an extra of this package.
        needed: the oldest version that works.

    Raises:
        ModuleNotFoundError: if it is missing.
        ConfigurationError: if it is too old.
    """
    advice = f"Install it: {installing(framework)}."
    try:
        found = version(framework)
    except PackageNotFoundError:
        raise ModuleNotFoundError(
            f"the adapter for {framework} needs {framework} {needed} or newer, which is not "
            f"installed. {advice}",
            name=framework,
        ) from None
    if release(found) < release(needed):
        raise ConfigurationError(
            f"{framework} {found} is installed, but its adapter needs {needed} or newer. {advice}"
        )


def release(text: str) -> tuple[int, ...]:
    """Return a version's first numbers, up to three; as numbers, 4.9 comes before 4.57.dev0."""
    return tuple(int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:3])
