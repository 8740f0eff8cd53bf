"""Checks of arguments: numbers and their ranges, flags, names, devices, paths and objects.

Each returns the argument in its plain form, or raises a `ConfigurationError` that names it.
"""

import math
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import partial
from itertools import chain
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import nn

from selective_backprop._core.errors import ConfigurationError


class NamedOption(StrEnum):
    """Options that have names; messages and reprs show the names in quotes, as in code."""

    def __repr__(self) -> str:  # Sphinx fails with `str.__repr__`
        return repr(self.value)


Named = TypeVar("Named", bound=NamedOption)


def check_number(
    name: str,
    value: Any,
    hint: str = "",
    *,
    least: float = 0,
    above: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
    whole: bool = False,
    optional: bool = False,
) -> Any:
    """Return a finite number within its bounds, as a Python int or float.

    NumPy scalars and tensors without axes are numbers too; a bool is not. A `whole` number may be a
    float such as 3.0. `least` and `most` are allowed, `above` and `below` are not.
    """
    if value is None and optional:
        return None
    # Exact types, since a bool is an int too, and NumPy's float64 is a float.
    number = value if type(value) in (int, float) else _unwrapped(value)
    if isinstance(number, bool) or not isinstance(number, Real):
        number = None
    elif not isinstance(number, int | float):
        number = float(number)
    inside = number is not None and least <= number <= most and above < number < below
    if inside and not (whole and number % 1):
        return number
    kind = f" of type {type(value).__name__}" * (number is None and value is not None)
    low, high = max(least, above), min(below, most)
    bounds = f" {'above' if above >= least else 'of at least'} {low:g}" * math.isfinite(low)
    if math.isfinite(high):
        bounds = f" in {'[('[above >= least]}{low:g}, {high:g}{'])'[below <= most]}"
    raise ConfigurationError(
        f"{name}={value!r:.60}{kind}: a {'whole' if whole else 'finite'} number{bounds} is needed"
        f"{f'; {hint}' * bool(hint)}"
    )


check_whole = partial(check_number, whole=True, least=1)


def check_rate(name: str, value: Any) -> float:
    return float(check_number(name, value, "1/3 keeps a third", above=0, most=1))


def check_flag(name: str, value: Any, *, optional: bool = False) -> Any:
    """Return True or False; refuse words such as "no", which Python would take for true."""
    plain = _unwrapped(value)
    if isinstance(plain, bool) or (optional and value is None):
        return plain
    raise ConfigurationError(f"{name}={value!r:.60}: True or False is needed")


def choose(name: str, value: Named | str, kind: type[Named]) -> Named:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(choice)) for choice in kind)
        raise ConfigurationError(f"{name}={value!r}: choose one of {known}") from None


def check_instance(
    name: str, value: Any, kind: type, example: str, *, optional: bool = False
) -> None:
    if not isinstance(value, kind) and not (optional and value is None):
        noun = kind.__name__.partition("Abstract")[2].lower() or kind.__name__
        raise ConfigurationError(f"{name}={value!r:.60} is no {noun}; pass one such as {example}")


def settle(specification: object, check: Callable[..., Any], *names: str, **bounds: Any) -> None:
    for name in names:
        checked = check(name, getattr(specification, name), **bounds)
        object.__setattr__(specification, name, checked)


def _unwrapped(value: Any) -> Any:
    return value.item() if getattr(value, "ndim", None) == 0 else value


def find_device(
    model: nn.Module | None, device: torch.device | str | int | None
) -> torch.device | None:
    module = model if isinstance(model, nn.Module) else nn.Module()
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if tensor.is_meta:
            raise ConfigurationError(
                f"the model's {name!r} is on the meta device, where tensors hold no numbers. Call "
                "model.to_empty(device=...) and load its weights before it is wrapped"
            )
    if device is not None:
        try:
            return torch.device(str(device) if isinstance(device, bool) else device)
        except (RuntimeError, TypeError) as error:
            raise ConfigurationError(f"device={device!r:.60}: {error}") from error
    devices = {tensor.device for tensor in module.parameters()}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ConfigurationError(f"the model is on {names}; pass device= to say where inputs go")
    return next(iter(devices), None)


def check_paths(option: str, paths: Collection[str]) -> frozenset[str]:
    if isinstance(paths, str):
        raise ConfigurationError(f"{option}={paths!r}: write a set of paths, {{{paths!r}}}")
    return frozenset(paths)


class Padding(dict[str, float]):
    """The padding value of each path: `given` by the user, or usual, which a batch may lack."""

    def __init__(self, given: Mapping[str, float], usual: Mapping[str, float]) -> None:
        super().__init__({**usual, **given})
        self.given = frozenset(given)


def check_pad(pad: Mapping[str, float] | None) -> dict[str, float]:
    values = pad.values() if isinstance(pad, Mapping) else [] if pad is None else [None]
    if not all(isinstance(_unwrapped(value), Real) for value in values):
        raise ConfigurationError(f'pad={pad!r:.60}: write a number per path, such as {{"0": 0}}')
    return pad if isinstance(pad, Padding) else dict(pad or {})
