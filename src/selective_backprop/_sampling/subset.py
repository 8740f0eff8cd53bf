"""A part of a data set: which examples, by what scores, and what the scores cost."""

import hashlib
import os
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError, DataError
from selective_backprop._core.files import replacing
from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Int, Num

KIND = "selective_backprop.Subset 1"  # a class, and the version of its files


@final
@dataclass(frozen=True, repr=False)
class Subset:
    """The part of a data set that you keep.

    Two subsets with equal contents are equal, also in different processes. Tensors are copied.

    Args:
        indices: the data-set indices of the kept examples, none twice; stored in ascending order.
        examples: number of examples in the whole data set.
        scores: the scores by which you chose, one finite number for each example of the whole data
            set. They are stored as float32 or float64. None if you chose without scores.
        source: how you chose, in a few words.
        cost: cost of the scores, in epochs of training on everything; 0 if unknown.

    Attributes:
        digest: a hash of all arguments, in twelve hexadecimal digits.

    Raises:
        ConfigurationError: if there are no indices, if an index is repeated or outside the data
            set, if the scores are not one finite number per example, or if the cost is negative.
    """

    indices: Int[Tensor, " kept"] = field(compare=False)
    examples: int
    _: KW_ONLY
    scores: Num[Tensor, " example"] | None = field(default=None, compare=False)
    source: str = "chosen by hand"
    cost: float = 0.0
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        settle(self, check_whole, "examples")
        object.__setattr__(self, "indices", _ascending(self.indices, self.examples))
        if self.scores is not None:
            scores = check_numbers("scores", self.scores, self.examples)
            object.__setattr__(self, "scores", scores)
        settle(self, check_number, "cost", hint="use 0 if it is unknown")
        object.__setattr__(self, "digest", self._digest())

    def __len__(self) -> int:
        return self.indices.shape[0]

    def __repr__(self) -> str:
        # Saved states hold this text, so it must be the same in every process.
        return f"Subset({len(self)} of {self.examples}, {self.source!r}, digest {self.digest})"

    def mask(self) -> Tensor:
        """Return whether each example of the data set is kept, bool `[example]`."""
        mask = torch.zeros(self.examples, dtype=torch.bool)
        mask[self.indices] = True
        return mask

    def check(self, examples: int) -> None:
        """Refuse a data set of another number of examples."""
        if examples != self.examples:
            raise ConfigurationError(
                f"{self!r} is a part of a data set of {self.examples} examples, but the loader has "
                f"one of {examples}. Pass a loader of the same data set, or make a subset of this."
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `Subset.load` reads, whole or not at all; create missing folders."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        with replacing(path) as file:
            torch.save({"kind": KIND, **parts}, file)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Subset":
        """Return the subset that `save` wrote. No code in the file is run.

        Raises:
            DataError: if the file is missing or damaged, or holds no subset that can be read.
        """
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            # Refuses any other names.
            kind, *_ = Saved(content).fields("kind", *(each.name for each in fields(cls)))
            if kind.value != KIND:
                raise ValueError(f"it holds no {KIND}")
            subset = cls(**{each.name: content[each.name] for each in fields(cls) if each.init})
            if subset.digest != content["digest"]:
                raise ValueError("its digest does not match its content")
        except Exception as error:  # damaged bytes and values can raise anything
            advice = "Write it again with Subset.save(path)."
            raise DataError(f"{path} cannot be read as a subset: {error}. {advice}") from error
        return subset

    def _digest(self) -> str:
        kind = None if self.scores is None else self.scores.dtype
        facts = (len(self), int(self.examples), str(kind), self.source, float(self.cost))
        content = hashlib.sha256(repr(facts).encode())
        for tensor in (self.indices, self.scores):
            if tensor is not None:
                content.update(tensor.numpy())
        return content.hexdigest()[:12]


def kind_of(value: object) -> str:
    tensor = isinstance(value, Tensor)
    return f"{value.dtype} of shape {tuple(value.shape)}" if tensor else type(value).__name__


def _ascending(indices: Tensor, examples: int) -> Tensor:
    if not isinstance(indices, Tensor) or indices.ndim != 1:
        raise ConfigurationError(f"indices must be a 1-D tensor, got {kind_of(indices)}")
    if indices.dtype is torch.bool:
        raise ConfigurationError("indices are a mask; pass mask.nonzero().flatten() instead")
    if indices.is_floating_point() or indices.is_complex() or not len(indices):
        found = f"{len(indices)} of {indices.dtype}"
        raise ConfigurationError(f"indices must be whole numbers, at least one; got {found}")
    ordered = indices.detach().to("cpu", torch.int64).sort().values
    outside = ordered[(ordered < 0) | (ordered >= examples)]
    if len(outside):
        raise ConfigurationError(
            f"index {int(outside[0])} is outside of a data set of {examples}, with indices 0 to "
            f"{examples - 1}"
        )
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(again):
        raise ConfigurationError(
            f"index {int(again[0])} comes more than once; pass indices.unique() instead"
        )
    return ordered


def check_numbers(name: str, numbers: Tensor, examples: int) -> Tensor:
    """Return a copy of one finite number for each example of a data set, in float32 or float64."""
    if not isinstance(numbers, Tensor) or tuple(numbers.shape) != (examples,):
        raise ConfigurationError(
            f"{name} must be a tensor with one number for each example of the whole data set, "
            f"of shape ({examples},); got {kind_of(numbers)}"
        )
    # float32 holds every number of two bytes exactly; longer integers need float64.
    short = numbers.dtype is torch.float32 or numbers.dtype.itemsize <= 2
    copied = numbers.detach().to("cpu", torch.float32 if short else torch.float64, copy=True)
    bad = (~copied.isfinite()).nonzero().flatten().tolist()
    if bad:
        raise ConfigurationError(
            f"{len(bad)} of {examples} {name} are not finite; the first are of examples {bad[:10]}"
        )
    return copied.contiguous()
