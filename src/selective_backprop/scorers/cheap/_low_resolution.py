"""Score smaller images: a convolutional net's selection pass costs a quarter at half the side."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional

from selective_backprop._batches.structure import map_leaves
from selective_backprop._core.errors import BatchError, ConfigurationError
from selective_backprop._core.options import check_whole, settle
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    start_scorer,
)
from selective_backprop.scorers.cheap._approximate import Pair, check_wrapper, start_checked
from selective_backprop.scorers.cheap._check import Check


@final
@dataclass(frozen=True)
class LowResolution(AbstractScorer):
    """Score as the scorer inside does, on images averaged over squares of pixels.

    The model must take images of any size, as nets that pool before their last layer do. Where
    targets are maps of pixels, `losses=` must fit them to what the model makes of small images.

    Args:
        scorer: scores the small images.
        factor: pixels along the side of a square, at least 2. Where a side is no multiple of it,
            the last squares are smaller.
        paths: where in the batch the images are, `[candidate, channel, height, width]`, of a
            floating type: keys, field names and positions joined by dots, such as `"0"` or
            `"inputs.image"`. None: the first such tensor.
        check: when to compare the scores with those of whole images; None for never.

    Raises:
        ConfigurationError: if a value is out of its range or the scorer cannot be wrapped.
    """

    scorer: AbstractScorer
    factor: int = 2
    paths: Collection[str] | None = None
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self)
        settle(self, check_whole, "factor", least=2)
        if isinstance(self.paths, str) or (self.paths is not None and not self.paths):
            raise ConfigurationError(
                f"paths={self.paths!r}: a collection of paths is needed, such as ['0'], or None "
                "for the first images in the batch"
            )
        if self.paths is not None:
            object.__setattr__(self, "paths", tuple(sorted(set(self.paths))))

    @property
    def needs(self) -> Needs:
        """What the scorer inside needs."""
        return self.scorer.needs

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer."""

        def begin(context: Context) -> Pair:
            exact = start_scorer(self.scorer, context)
            paths = None if self.paths is None else frozenset(self.paths)
            return Pair(_OnSmallImages(exact, int(self.factor), paths), exact, shared=True)

        advice = "Take a smaller factor=, or score whole images"
        return start_checked(self, self.check, context, begin, advice=advice)


class _OnSmallImages(Delegating):
    def __init__(self, inner: RunningScorer, factor: int, paths: frozenset[str] | None) -> None:
        super().__init__(inner)
        self._factor = factor
        self._paths = paths
        self._worked = False

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        small = shrink_images(batch, self._factor, self._paths)
        try:
            scores = self.inner.score(small, indices)
        except RuntimeError as error:
            if not self._worked:
                error.add_note(
                    f"LowResolution gave the model images whose sides are {self._factor} times "
                    "smaller, which it may not take: it must pool before its last layer, as with "
                    "nn.AdaptiveAvgPool2d(1)."
                )
            raise
        self._worked = True
        return scores


def shrink_images(batch: Any, factor: int, paths: frozenset[str] | None) -> Any:
    """Return a batch with smaller images; nothing of the batch itself is changed.

    Args:
        batch: tensors in nested containers.
        factor: pixels along the side of the squares that are averaged.
        paths: of the images, or None for the first ones.

    Raises:
        BatchError: if there are none, or not at every path; the message says what there is.
    """
    found: dict[str, Any] = {}
    map_leaves(lambda path, leaf: found.setdefault(path, leaf), batch)
    if paths is None:
        paths = frozenset([next((p for p in found if _are_images(found[p])), "")])
    for path in paths:
        if not _are_images(found.get(path)):
            there = ", ".join(f"{name!r}: {_describe(leaf)}" for name, leaf in found.items())
            wanted = f"at {path!r} " if path in found or path else ""
            raise BatchError(
                f"there are no images {wanted}to make smaller: a tensor [candidate, channel, "
                f"height, width] of a floating type is needed, and the batch has {there}"
            )
    return map_leaves(_shrinking(factor, paths), batch)


def _shrinking(factor: int, paths: frozenset[str]) -> Callable[[str, Any], Any]:
    def shrink(path: str, leaf: Any) -> Any:
        if path not in paths:
            return leaf
        if min(leaf.shape[2:]) < factor:
            raise BatchError(
                f"the images at {path!r} have {leaf.shape[2]} × {leaf.shape[3]} pixels, which "
                f"cannot be averaged over squares of {factor}; take a smaller factor="
            )
        with torch.no_grad():
            return functional.avg_pool2d(leaf, factor, ceil_mode=True)

    return shrink


def _are_images(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim == 4 and leaf.is_floating_point()


def _describe(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return type(leaf).__name__
