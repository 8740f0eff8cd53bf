"""Saved states: each value is checked when it is read, and a load that fails changes nothing."""

import copy
import math
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError

FINITE = sys.float_info.max
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
MOST = 2**62  # the highest count, so that later additions still fit into 64 bits
LAST_EPOCH = 2**31 - 2  # epochs are stored in 32 bits, and the next one must fit too
SEEDS = 2**64  # a seed has 64 bits

Read = TypeVar("Read")


class StateError(ConfigurationError):
    """A saved state that cannot be loaded: a path such as `["stats"]["epoch"]`, and why."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"state{path}{problem}")
        self.path, self.problem = path, problem


@dataclass(frozen=True)
class Saved:
    """A value in a saved state, and the path to it; what reads it may raise `StateError`."""

    value: Any
    path: str = ""

    def refuse(self, needed: str) -> StateError:
        return StateError(self.path, f": {needed} is needed, got {_show(self.value)}")

    def fields(self, *names: str) -> "Collection[Saved]":
        if not isinstance(self.value, Mapping):
            raise self.refuse("a mapping")
        for name in names:
            if name not in self.value:
                raise StateError(self.path, f' lacks "{name}"')
        for name in self.value:
            if name not in names:
                raise StateError(self.path, f" holds {name!r:.60}, which is not known here")
        return [Saved(self.value[name], f'{self.path}["{name}"]') for name in names]

    def items(self, count: int | None = None) -> "Collection[Saved]":
        if not isinstance(self.value, list | tuple) or count not in (None, len(self.value)):
            raise self.refuse("a list" if count is None else f"a list of {count}")
        return [Saved(each, f"{self.path}[{place}]") for place, each in enumerate(self.value)]

    def maybe(self, read: "Callable[[Saved], Read]") -> Read | None:
        return None if self.value is None else read(self)

    def nothing(self) -> None:
        if self.value is not None:
            raise self.refuse("None")

    def whole(self, least: int = 0, most: int = MOST) -> int:
        if not isinstance(self.value, int):
            raise self.refuse(f"a whole number from {least}")
        return int(self.number(least, most, "whole"))

    def number(self, least: float = -FINITE, most: float = FINITE, kind: str = "finite") -> float:
        value = self.value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value <= most:
            ends = (("from", least), ("to", most))
            words = [f" {word} {end}" for word, end in ends if abs(end) < MOST]
            raise self.refuse(f"a {kind} number{''.join(words)}")
        return value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.refuse("True or False")
        return self.value

    def tensor(
        self,
        *dtypes: torch.dtype,
        shape: tuple[int | None, ...],
        least: float = -math.inf,
        most: float = math.inf,
        nan: bool = False,
    ) -> Tensor:
        """Return a tensor, with None in `shape` for any length; unless `nan`, the host reads it."""
        found = self.value
        fits = isinstance(found, Tensor) and found.dtype in dtypes and found.ndim == len(shape)
        if not fits or any(n not in (None, m) for n, m in zip(shape, found.shape, strict=True)):
            kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            lengths = ", ".join("any" if length is None else str(length) for length in shape)
            raise self.refuse(f"a {kinds} tensor of shape ({lengths})")
        if not nan and found.numel():
            low, high = (end.item() for end in found.detach().aminmax())
            if not least <= low <= high <= most:  # a NaN makes both ends NaN, and fails this
                problem = f": numbers from {least} to {most} are needed, got {low} to {high}"
                raise StateError(self.path, problem)
        return found.detach()

    def tensors(self, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors with the names and shapes of `like`; their numbers are not checked."""
        for each, wanted in zip(self.fields(*like), like.values(), strict=True):
            shape = tuple(wanted.shape)
            if not isinstance(each.value, Tensor) or tuple(each.value.shape) != shape:
                raise each.refuse(f"a tensor of shape {shape}")
        return dict(self.value)

    def random_state(self, device: torch.device | str = "cpu") -> Tensor:
        """Return a random generator's state, on the CPU; refuse one that `device` rejects."""
        with self.inside():
            state = self.value.cpu()
            torch.Generator(device).set_state(state)  # raises if the state is damaged
        return state

    def record(self, kind: type[Read], **ranges: tuple[float, float]) -> Read:
        types = {field.name: field.type for field in fields(cast(Any, kind))}
        values = {}
        for (name, each_kind), each in zip(types.items(), self.fields(*types), strict=True):
            read, most = (each.whole, MOST) if each_kind is int else (each.number, FINITE)
            values[name] = read(*cast(Any, ranges.get(name, (0, most))))
        return kind(**values)

    @contextmanager
    def inside(self) -> Generator[None]:
        """Put this value's path in front of the body's errors, which all become `StateError`s."""
        try:
            yield
        except StateError as error:
            raise StateError(self.path + error.path, error.problem) from error.__cause__
        except ConfigurationError as error:
            raise StateError(self.path, f": {error}") from error
        except Exception as error:  # damaged values can make the body raise anything
            why = f"{type(error).__name__}: {error}"
            raise StateError(self.path, f" cannot be loaded: {why}") from error


@runtime_checkable
class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


@contextmanager
def loaded(parts: Iterable[tuple[Stateful, Saved]]) -> Generator[None]:
    """Load the states of parts, then run the body; after an error, all are as they were."""
    before: list[tuple[Stateful, dict[str, Any]]] = []
    try:
        for part, saved in parts:
            # Saved before loading, which may fail halfway.
            before.append((part, copy.deepcopy(part.state_dict())))
            with saved.inside():
                part.load_state_dict(saved.value)
        yield
    except BaseException:
        for part, state in before:
            part.load_state_dict(state)
        raise


def _show(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    return f"{value!r:.60}"


def check_state(kind: str, state: Any, version: int, built: Mapping[str, Any]) -> None:
    found = state.get("version") if isinstance(state, Mapping) else None
    if not isinstance(found, int) or "built" not in state:
        name = f"Selective{kind.capitalize()}"
        raise ConfigurationError(f"pass what {name}.state_dict() returned; got {state!r:.60}")
    if found != version:
        raise ConfigurationError(
            f"the state has version {found}, but this release reads version {version}: load it "
            "with the release that saved it"
        )
    for name, found in zip(built, Saved(state["built"], '["built"]').fields(*built), strict=True):
        # Types are compared as well, since True equals 1.
        if type(found.value) is not type(built[name]) or found.value != built[name]:
            raise ConfigurationError(
                f"the state is of a {kind} with {name}={found.value}, but this one has "
                f"{name}={built[name]}. Build the {kind} as it was."
            )
