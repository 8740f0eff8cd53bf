"""Functions of the user's that make what is trained beside the model."""

from collections.abc import Callable
from typing import Any

from torch import nn

from selective_backprop._errors import ConfigurationError


def check_maker(name: str, maker: Any) -> None:
    """Refuse what makes nothing.

    Raises:
        ConfigurationError: if it cannot be called, or is a module and so made already.
    """
    if isinstance(maker, nn.Module) or not callable(maker):
        raise ConfigurationError(
            f"{name}={type(maker).__name__}: a function that makes one is needed, so that every "
            "training begins with a new one"
        )


def name_of(maker: Callable[..., Any]) -> str:
    """Return what stands for it in a saved state: the same in every process."""
    return getattr(maker, "__qualname__", type(maker).__qualname__)
