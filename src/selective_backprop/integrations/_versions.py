"""Check that an adapter's framework is installed and new enough."""

import re
from importlib.metadata import PackageNotFoundError, version

from selective_backprop._core.errors import ConfigurationError, installing


def require(framework: str, needed: str) -> None:
    """Refuse a framework that is missing or too old.

    Args:
        framework: name of the framework on the package index, and as an extra of this package.
        needed: the oldest version that works.

    Raises:
        ModuleNotFoundError: if the framework is missing.
        ConfigurationError: if the framework is too old.
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
    """Return up to three leading numbers of a version. Compared as numbers, 4.9 is before 4.57."""
    return tuple(int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:3])
