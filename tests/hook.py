"""Check the package's annotations where tests run: types of all calls, and shapes where they stand.

jaxtyping's own import hook checks parameters twice and builds its checks anew for each function
that is defined inside another one as it runs, which took five sixths of the time of many tests.
Here, each function and method of a module is checked once per call, by checks that are built when
it is first called; functions inside functions, and generators of shaped tensors, are left as they
are.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, jaxtyped

# An int is a float, as for type checkers.
CONFIGURATION = BeartypeConf(is_pep484_tower=True)
switch = {"on": True}


def install_hook(package: str) -> None:
    """Check what modules of a package define, which must not have been imported before."""
    sys.meta_path.insert(0, _Finder(package))


class _Finder(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != self._package:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _check_members(module, module.__name__)


def _check_members(owner: Any, module: str) -> None:
    for name, value in list(vars(owner).items()):
        if inspect.isclass(value) and value.__module__ == module:
            _check_members(value, module)
        elif (checked := _checked(value, module)) is not value:
            setattr(owner, name, checked)


def _checked(value: Any, module: str) -> Any:
    match value:
        case FunctionType(__module__=where, __annotations__=hints) if where == module and hints:
            # What is decorated need not return what is annotated.
            return value if hasattr(value, "__wrapped__") else check(value)
        case staticmethod() | classmethod():
            return type(value)(_checked(value.__func__, module))
        case property():
            return property(
                *(_checked(each, module) for each in (value.fget, value.fset, value.fdel)),
                value.__doc__,
            )
        case cached_property():
            value.func = _checked(value.func, module)
    return value


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same, and raises where its annotations are not met."""
    strict: Callable[..., Any] | None = None

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal strict
        if not switch["on"]:
            return function(*arguments, **options)
        if strict is None:
            strict = beartype(function, conf=CONFIGURATION)
            if any(map(_has_shape, function.__annotations__.values())):
                # A generator is checked when it is first asked, among the sizes of whoever asks;
                # and seeing it, jaxtyping would let its annotations pass from then on, everywhere.
                generates = inspect.isgeneratorfunction(function)
                strict = function if generates else jaxtyped(strict, typechecker=None)
        return strict(*arguments, **options)

    return call


def _has_shape(hint: Any) -> bool:
    return (inspect.isclass(hint) and issubclass(hint, AbstractArray)) or any(
        map(_has_shape, get_args(hint))
    )
