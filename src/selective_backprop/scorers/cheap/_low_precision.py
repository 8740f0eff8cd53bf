"""Score in a shorter number format: where the hardware has it, a selection pass costs less."""

import platform
from dataclasses import dataclass
from typing import Any, final

import torch

from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    scorer_parts,
    start_scorer,
)
from selective_backprop.scorers._forward import Forward
from selective_backprop.scorers.cheap._approximate import Pair, check_wrapper, start_checked
from selective_backprop.scorers.cheap._check import Check


@final
@dataclass(frozen=True)
class LowPrecision(AbstractScorer):
    """Score as the scorer inside does, under autocast to a type of 16 bits.

    Parameters stay as they are and are cast anew at each pass, so that nothing is remembered
    that training could meet. A model of large activations may overflow in `torch.float16`.

    Args:
        scorer: what is run under autocast.
        dtype: `torch.bfloat16` or `torch.float16`.
        check: when to compare the scores with those of full precision; None for never.

    Raises:
        ConfigurationError: if there is no such type, the scorer cannot be wrapped, or it has a
            precision of its own.
    """

    scorer: AbstractScorer
    dtype: torch.dtype = torch.bfloat16
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self)
        if self.dtype not in (torch.bfloat16, torch.float16):
            raise ConfigurationError(
                f"dtype={self.dtype}: a type of 16 bits is needed, torch.bfloat16 or torch.float16"
            )
        *_, innermost = scorer_parts(self.scorer)
        if isinstance(innermost, Forward) and innermost.autocast is not None:
            raise ConfigurationError(
                f"{innermost!r} has a precision of its own, which would be in force; write "
                "LowPrecision around Forward() without autocast="
            )

    @property
    def needs(self) -> Needs:
        """What the scorer inside needs."""
        return self.scorer.needs

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer.

        Warns where the hardware is known to compute in this type more slowly than in full
        precision.

        Raises:
            ConfigurationError: if torch has no autocast on this device.
        """
        device = torch.device("cpu") if context.device is None else context.device
        if not torch.amp.is_autocast_available(device.type):
            raise ConfigurationError(
                f"torch has no autocast on {device.type}; score with {self.scorer!r} itself"
            )
        if is_slow(device, self.dtype):
            warn(
                f"this {device.type} has no fast path for {self.dtype}: LowPrecision will likely "
                f"cost more than it saves. Score with {self.scorer!r} itself here, or time both.",
            )

        def begin(context: Context) -> Pair:
            exact = start_scorer(self.scorer, context)
            return Pair(_UnderAutocast(exact, device.type, self.dtype), exact, shared=True)

        return start_checked(self, self.check, context, begin, advice="Score in full precision")


class _UnderAutocast(Delegating):
    def __init__(self, inner: RunningScorer, kind: str, dtype: torch.dtype) -> None:
        super().__init__(inner)
        self._kind = kind
        self._dtype = dtype

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        # Weights cast under no_grad have no gradient: training must not meet them in a cache.
        with torch.autocast(self._kind, dtype=self._dtype, cache_enabled=False):
            scores = self.inner.score(batch, indices)
        return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def is_slow(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a device is known to have no fast path for a type of 16 bits.

    On NVIDIA GPUs that is so before Ampere for bfloat16 and before Volta for float16, on x86
    processors without AVX512-BF16 or AMX, or AVX512-FP16. Of other devices nothing is known.
    """
    if device.type == "cuda" and torch.version.hip is None:
        least = (8, 0) if dtype is torch.bfloat16 else (7, 0)
        return torch.cuda.get_device_capability(device) < least
    if device.type == "cpu" and platform.machine() in ("x86_64", "AMD64"):
        # not public, and not all of them in every release: what is not there says nothing
        places = (
            (torch.cpu, ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
            if dtype is torch.bfloat16
            else (torch.ops.mkldnn, ("_is_mkldnn_fp16_supported",))
        )
        known = [getattr(places[0], name) for name in places[1] if hasattr(places[0], name)]
        return bool(known) and not any(supported() for supported in known)
    return False
