"""Keep `torch.compile` out of functions that it cannot make faster."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def uncompiled(function: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Keep `torch.compile` out of a function and all that it calls.

    `torch.compiler.disable` does this, but imports the compiler, which takes longer than importing
    torch. So it is called when the function is called first, not when the function is defined.
    """
    disabled: list[Callable[_Given, _Returned]] = []

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    return call
