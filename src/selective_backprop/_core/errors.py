"""All errors and warnings."""

import sys
import warnings
from typing import Any

PACKAGE = __name__.partition(".")[0]  # the name of the lab begins with it


class SelectiveBackpropError(Exception):
    """The base class of every error that this package raises on purpose."""


class ConfigurationError(SelectiveBackpropError, ValueError):
    """An option, or a combination of options, that cannot work."""


class LoaderError(SelectiveBackpropError, ValueError):
    """A data loader that cannot be wrapped, or an epoch that cannot go on."""


class BatchError(SelectiveBackpropError, ValueError):
    """A batch whose rows cannot be counted, picked out, or put into one batch with others."""


class LossError(SelectiveBackpropError, ValueError):
    """Losses that are not one finite number per example."""


class DataError(SelectiveBackpropError, ValueError):
    """A data folder or file that is missing, truncated or of the wrong kind."""


class RecordError(SelectiveBackpropError, ValueError):
    """A saved record of a training run that cannot be read, or does not fit other records."""


class SelectionWarning(UserWarning):
    """Something works, but not as well as you asked for."""


def refuse(reasons: dict[str, Any]) -> None:
    """Raise a `ConfigurationError` with the first of the reasons that applies."""
    for reason, applies in reasons.items():
        if applies:
            raise ConfigurationError(reason)


def installing(extra: str) -> str:
    """Return the command that installs this package with what an extra needs."""
    return f"pip install 'selective-backprop[{extra}]'"


def warn(message: str) -> None:
    """Give a `SelectionWarning` at the user's line that called the package's outermost frame."""
    found = frame = sys._getframe(1)
    while frame is not None:  # to the end: the last match is the outermost
        name = frame.f_globals.get("__name__", "")
        if name.startswith(PACKAGE) and frame.f_back is not None:
            found = frame.f_back
        frame = frame.f_back
    warnings.warn_explicit(
        message,
        SelectionWarning,
        found.f_code.co_filename,
        found.f_lineno,
        module=found.f_globals.get("__name__"),
        # The registry of `warnings.warn`, which lets each line warn only once.
        registry=found.f_globals.setdefault("__warningregistry__", {}),
    )
