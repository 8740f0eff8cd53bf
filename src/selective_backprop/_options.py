"""What an argument must be: a number in its range, a flag, a name, or an object of a kind."""

import math
from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from numbers import Real
from typing import Any, TypeVar

import torch

from selective_backprop._errors import ConfigurationError

Number = TypeVar("Number")
Named = TypeVar("Named", bound=StrEnum)


def check_number(
    name: str,
    value: Number,
    what: str = "it",
    hint: str = "",
    *,
    least: float = 0,
    above: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
    optional: bool = False,
) -> Number:
    """Return a finite number within its range, as an int or float of Python's own.

    Those of NumPy, and tensors without axes, are numbers too; a bool is none.

    Args:
        name: of the option.
        value: what was given for it.
        what: the option is, for the message.
        hint: on what to write, for the message.
        least: it may be.
        above: which it must be.
        below: which it must be.
        most: it may be.
        optional: whether None is taken, and returned.

    Raises:
        ConfigurationError: if it is no such number.
    """
    left, from_least = (
        (f"({above:g}", f"above {above:g}")
        if above >= least
        else (f"[{least:g}", f"at least {least:g}")
    )
    right = f"{below:g})" if below < most else f"{most:g}]"
    bounded = math.isfinite(min(below, most))
    bounds = f"a number in {left}, {right}" if bounded else f"a finite number, {from_least}"

    def fits(number: float) -> bool:
        return least <= number <= most and above < number < below

    return _check(name, value, fits, f"{what} must be {bounds}", hint, optional)


def check_whole(
    name: str,
    value: Number,
    what: str = "it",
    hint: str = "",
    *,
    least: float = 1,
    most: float = math.inf,
    optional: bool = False,
) -> Number:
    """Return a whole number within its range; arguments are as of `check_number`.

    A float such as 3.0 is one, and stays what it is.

    Raises:
        ConfigurationError: if it is no such number.
    """
    bounds = (f"at least {least:g}", least), (f"at most {most:g}", most)
    needed = ", ".join(text for text, bound in bounds if math.isfinite(bound))
    needed = f"{what} must be a whole number{', ' * bool(needed)}{needed}"

    def fits(number: float) -> bool:
        return least <= number <= most and number % 1 == 0

    return _check(name, value, fits, needed, hint, optional)


def check_flag(name: str, value: Any, *, optional: bool = False) -> Any:
    """Return a truth value: of a word such as "no", nobody knows what it is taken for.

    Raises:
        ConfigurationError: if it is neither True nor False, nor None where that is taken.
    """
    plain = _unwrapped(value)
    if isinstance(plain, bool) or (optional and value is None):
        return plain
    raise ConfigurationError(f"{name}={value!r:.60}: there are True and False")


def choose(kind: type[Named], option: str, value: Named | str) -> Named:
    """Return the member of an enumeration that a name stands for.

    Raises:
        ConfigurationError: if there is none; the message lists them.
    """
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(choice)) for choice in kind)
        raise ConfigurationError(f"{option}={value!r}: there are {known}") from None


def check_instance(
    name: str, value: Any, kind: type, example: str, *, optional: bool = False
) -> None:
    """Refuse what is no object of a kind.

    Args:
        name: of the option.
        value: what was given for it.
        kind: of which it must be.
        example: of such an object, for the message.
        optional: whether None is taken.

    Raises:
        ConfigurationError: if it is another.
    """
    if not isinstance(value, kind) and not (optional and value is None):
        _, _, interface = kind.__name__.partition("Abstract")
        noun = interface.lower() or kind.__name__
        raise ConfigurationError(f"{name}={value!r} is no {noun}, such as {example}")


def check_device(device: torch.device | str | int) -> torch.device:
    """Return the device that a name or number stands for.

    Raises:
        ConfigurationError: if there is none.
    """
    try:
        if isinstance(device, bool):
            raise TypeError("a bool is no device")
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ConfigurationError(f"device={device!r:.60}: {error}") from error


def check_rate(rate: Any) -> float:
    """Return a share of candidates as a float.

    Raises:
        ConfigurationError: if it is not in (0, 1], or so small that its reciprocal is infinite.
    """
    what, hint = "the share of candidates to keep", "1/3 keeps a third"
    share = float(check_number("rate", rate, what, hint, above=0, most=1))
    if math.isinf(1 / share):  # as if it were 0
        raise ConfigurationError(f"rate={rate}: {what} is too small; {hint}")
    return share


def store(specification: object, **checked: Any) -> None:
    """Set checked values of a frozen specification."""
    for name, value in checked.items():
        object.__setattr__(specification, name, value)


def _check(
    name: str, value: Any, fits: Callable[[float], bool], needed: str, hint: str, optional: bool
) -> Any:
    if value is None and optional:
        return None
    number = _number(_unwrapped(value))
    if number is not None and fits(number):
        return number
    found = f"{name}={value!r:.60}"
    if number is None and value is not None:
        found = f"{found} of type {type(value).__name__}"
    if isinstance(value, str) and _read(value, fits):
        hint = f"write {name}={value.strip()}, without quotes"
    raise ConfigurationError(f"{found}: {needed}{f'; {hint}' * bool(hint)}")


def _unwrapped(value: Any) -> Any:
    """Return what a scalar of NumPy, or an array or tensor without axes, holds."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return value if isinstance(value, (int, float)) else float(value)


def _read(text: str, fits: Callable[[float], bool]) -> bool:
    """Return whether a string reads as a number that would do."""
    try:
        return fits(float(Fraction(text)))
    except (ValueError, ZeroDivisionError, OverflowError):
        return False
