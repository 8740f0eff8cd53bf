"""Which releases of Lightning the adapter works with."""

from importlib import metadata

from selective_backprop._core.errors import ConfigurationError, installing
from selective_backprop.integrations._versions import release

OLDEST = "2.6"


def installed_version() -> str | None:
    """Return the version of Lightning that is installed; None if there is none."""
    try:
        return metadata.version("lightning")
    except metadata.PackageNotFoundError:
        return None


def check_version(found: str | None) -> None:
    """Refuse a version that the adapter does not work with.

    Args:
        found: the version that is installed, or None.

    Raises:
        ImportError: if Lightning is not installed.
        ConfigurationError: if it is too old.
    """
    install = installing("lightning")
    if found is None:
        raise ImportError(
            "selective_backprop.integrations.lightning needs the package lightning, which is not "
            f"installed (pytorch-lightning is another package): {install}",
            name="lightning",
        )
    if release(found) < release(OLDEST):
        raise ConfigurationError(
            f"lightning {found} is installed, and selective_backprop.integrations.lightning works "
            f"with {OLDEST} or newer: {install}"
        )
