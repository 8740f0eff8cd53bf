"""Remember the latest result that was computed from tensors, so that the CPU waits only once."""

import weakref
from typing import Generic, TypeVar

import torch
from torch import Tensor

Found = TypeVar("Found")


class Latest(Generic[Found]):
    """Remember a result computed from some tensors, until others come or these change."""

    def __init__(self) -> None:
        self._tensors: tuple[weakref.ref[Tensor], ...] = ()
        self._versions: list[int] = []
        self._found: Found | None = None

    def get(self, *tensors: Tensor) -> Found | None:
        """Return the result for these tensors; None if there is none or a tensor has changed."""
        if len(tensors) != len(self._tensors) or any(each.is_inference() for each in tensors):
            return None
        same = all(ref() is each for ref, each in zip(self._tensors, tensors, strict=True))
        return self._found if same and self._versions == [t._version for t in tensors] else None

    def put(self, found: Found, *tensors: Tensor) -> Found:
        """Remember a result computed from tensors, and return it."""
        if not any(each.is_inference() for each in tensors):  # torch does not count their changes
            self._tensors = tuple(map(weakref.ref, tensors))
            self._versions, self._found = [each._version for each in tensors], found
        return found

    def __reduce__(self) -> tuple[type["Latest[Found]"], tuple[()]]:
        """A copy is empty."""
        return type(self), ()


_places: Latest[Tensor] = Latest()  # each step asks twice for the places of one mask


def places_of(mask: Tensor) -> Tensor:
    """Return the places, `[place]`, at which a flattened mask is True; the CPU waits for these."""
    found = _places.get(mask)
    if found is not None:
        return found
    with torch.inference_mode(False):  # training may ask for the places of the same mask
        return _places.put(mask.flatten().nonzero().flatten(), mask)
