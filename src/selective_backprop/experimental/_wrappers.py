"""Score as another scorer does, in low precision or on small images."""

import platform
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional

from selective_backprop._batches.structure import map_leaves
from selective_backprop._core.errors import BatchError, ConfigurationError, warn
from selective_backprop._core.options import check_whole, settle
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.experimental._approximate import (
    Check,
    check_wrapper,
    start_wrapped,
)
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
)


@final
@dataclass(frozen=True)
class LowPrecision(AbstractScorer):
    """Score as the scorer inside does, under autocast to bfloat16.

    Parameters stay as they are and are cast anew at each pass, so that nothing is remembered
    that training could meet. Warns where the hardware is known to compute in bfloat16 more slowly
    than in full precision.

    Args:
        scorer: what is run under autocast.
        check: when to compare the scores with scores in full precision; None for never.

    Raises:
        ConfigurationError: if the scorer cannot be wrapped; at the start, if torch has no
            autocast on the device.
    """

    scorer: AbstractScorer
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self)

    @property
    def needs(self) -> Needs:
        return self.scorer.needs

    def start(self, context: Context) -> RunningScorer:
        device = torch.device("cpu") if context.device is None else context.device
        if not torch.amp.is_autocast_available(device.type):
            raise ConfigurationError(
                f"torch has no autocast on {device.type}; score with {self.scorer!r} itself"
            )
        if is_slow(device):
            warn(
                f"this {device.type} has no fast path for torch.bfloat16: LowPrecision will likely "
                f"cost more than it saves. Score with {self.scorer!r} itself here, or time both."
            )
        return start_wrapped(
            self,
            context,
            lambda inner: _UnderAutocast(inner, device.type),
            advice="Score in full precision",
        )


class _UnderAutocast(Delegating):
    def __init__(self, inner: RunningScorer, kind: str) -> None:
        super().__init__(inner)
        self._kind = kind

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        # Weights cast under no_grad have no gradient: training must not meet them in a cache.
        with torch.autocast(self._kind, dtype=torch.bfloat16, cache_enabled=False):
            scores = self.inner.score(batch, indices)
        return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def is_slow(device: torch.device) -> bool:
    """Return whether a device is known to have no fast path for bfloat16.

    On NVIDIA GPUs that is so before Ampere, on x86 processors without AVX512-BF16 or AMX. Of
    other devices nothing is known.
    """
    if device.type == "cuda" and torch.version.hip is None:
        return torch.cuda.get_device_capability(device) < (8, 0)
    if device.type == "cpu" and platform.machine() in ("x86_64", "AMD64"):
        # Not public, and not all of them in every release: one that is missing says nothing.
        names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        known = [getattr(torch.cpu, name) for name in names if hasattr(torch.cpu, name)]
        return bool(known) and not any(supported() for supported in known)
    return False


@final
@dataclass(frozen=True)
class LowResolution(AbstractScorer):
    """Score as the scorer inside does, on images averaged over squares of pixels.

    The images are the first tensor `[candidate, channel, height, width]` of a floating type.
    The model must take images of any size, as nets that pool before their last layer do. Where
    targets are maps of pixels, `losses=` must fit them to what the model makes of small images.

    Args:
        scorer: scores the small images.
        factor: pixels along the side of a square, at least 2. Where a side is no multiple of it,
            the last squares are smaller.
        check: when to compare the scores with scores of whole images; None for never.

    Raises:
        ConfigurationError: if a value is out of its range or the scorer cannot be wrapped.
    """

    scorer: AbstractScorer
    factor: int = 2
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self)
        settle(self, check_whole, "factor", least=2)

    @property
    def needs(self) -> Needs:
        return self.scorer.needs

    def start(self, context: Context) -> RunningScorer:
        return start_wrapped(
            self,
            context,
            lambda inner: _OnSmallImages(inner, int(self.factor)),
            advice="Take a smaller factor=, or score whole images",
        )


class _OnSmallImages(Delegating):
    def __init__(self, inner: RunningScorer, factor: int) -> None:
        super().__init__(inner)
        self._factor = factor
        self._worked = False

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        small = shrink_images(batch, self._factor)
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


def shrink_images(batch: Any, factor: int) -> Any:
    """Return a batch whose first images are smaller; change nothing in it.

    Raises:
        BatchError: if there are no images, or too small ones.
    """
    leaves: dict[str, Any] = {}
    map_leaves(lambda path, leaf: leaves.setdefault(path, leaf), batch)
    place = next((path for path, leaf in leaves.items() if _are_images(leaf)), None)
    if place is None:
        held = ", ".join(f"{name!r}: {_describe(leaf)}" for name, leaf in leaves.items())
        raise BatchError(
            "there are no images to make smaller: a tensor [candidate, channel, height, width] of "
            f"a floating type is needed, and the batch has {held}"
        )
    height, width = leaves[place].shape[2:]
    if min(height, width) < factor:
        raise BatchError(
            f"the images at {place!r} have {height} × {width} pixels, which cannot be averaged "
            f"over squares of {factor}; take a smaller factor="
        )

    @torch.no_grad()
    def shrink(path: str, leaf: Any) -> Any:
        return functional.avg_pool2d(leaf, factor, ceil_mode=True) if path == place else leaf

    return map_leaves(shrink, batch)


def _are_images(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim == 4 and leaf.is_floating_point()


def _describe(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return type(leaf).__name__
