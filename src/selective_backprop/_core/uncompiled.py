"""Keep `torch.compile` out of functions that it cannot make faster."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep `torch.compile` out of a function and all that it calls.

    `torch.compiler.disable` does this, but imports the compiler, which takes longer than importing
    torch. So it is called when the function is called first, not when the function is defined.
    """
    disabled: list[Callable[..., Any]] = []

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    return call
