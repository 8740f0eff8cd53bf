"""Containers that batches come in, and whether two batches are alike."""

import dataclasses
from collections import UserDict
from typing import Any, NamedTuple

import numpy as np
import torch


class Pair(NamedTuple):
    inputs: Any
    targets: Any


@dataclasses.dataclass(frozen=True)
class Example:
    inputs: Any
    note: Any = None


def same(one: Any, other: Any) -> bool:
    """Whether two batches are alike, types of containers included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, (dict, UserDict)):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if dataclasses.is_dataclass(one):
        return all(same(value, getattr(other, name)) for name, value in vars(one).items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
