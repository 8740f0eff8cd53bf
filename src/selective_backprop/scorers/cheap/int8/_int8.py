"""Score in 8-bit integers: what convolutional and linear nets compute fastest on a CPU."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import kept_random_streams, unwrapped
from selective_backprop._core.options import check_whole, settle
from selective_backprop._core.saved_state import Saved, loaded
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
from selective_backprop.scorers.cheap._compiled import Compiled
from selective_backprop.scorers.cheap._synced import refuse_synced
from selective_backprop.scorers.cheap.int8._int8_copy import Int8Copy
from selective_backprop.scorers.cheap.int8._int8_layers import is_available

FIRST_GAP = 1  # scored batches from the first calibration to the second
UNNOTICED = 16  # scored batches after which weights are copied though nothing seems to change


@final
@dataclass(frozen=True)
class Int8(AbstractScorer):
    """Experimental: score as the scorer inside does, with a copy of the model in 8-bit integers.

    Convolutions of images and linear layers compute in integers, all else as before. Each output
    channel's weights have a scale of their own, inputs of a layer the range that was seen in the
    last calibration. Calibrations come 1, 2, 4, 8 and so on scored batches apart, since a young
    model's activations move fastest, and after training that went on unscored. Copying and
    calibrating are part of the selection pass, and a calibration costs a pass in full precision.
    The copy takes as much memory as the model's parameters, and a quarter more; saved states
    hold it too.

    Args:
        scorer: scores with the copy; in eval mode, since BatchNorm becomes part of other layers.
        every: scored batches from one copy of the weights to the next, at least 1; None copies
            them whenever training has changed them, and saves that cost where several batches
            are scored between two steps. A change that torch keeps no count of, as through
            `.data`, is then noticed within 16 scored batches.
        recalibrate_every: scored batches from one calibration to the next, at least 1, once
            they are no longer closer together; or as many changes of a weight.
        calibration_batches: batches whose ranges a calibration unites, at least 1 and at most
            `recalibrate_every`.
        check: when to compare the scores with those of the model as it is; None for never. The
            batches of a check are spread from one calibration to the next.

    Raises:
        ConfigurationError: if a number is out of its range or the scorer cannot be wrapped.

    Source:
        Jacob et al. 2018, arXiv:1712.05877, section 2, for inference in integers.
    """

    scorer: AbstractScorer
    every: int | None = None
    recalibrate_every: int = 128
    calibration_batches: int = 1
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self, other_model=True)
        settle(self, check_whole, "every", optional=True)
        settle(self, check_whole, "recalibrate_every", "calibration_batches")
        if self.calibration_batches > self.recalibrate_every:
            raise ConfigurationError(
                f"calibration_batches={self.calibration_batches} of every recalibrate_every="
                f"{self.recalibrate_every} scored batches: there are no more than those"
            )
        self._check_inside()

    def _check_inside(self) -> None:
        refuse_synced(self)
        for part in scorer_parts(self.scorer):
            if isinstance(part, Forward) and part.training:
                raise ConfigurationError(
                    "Int8 makes BatchNorm a part of other layers, as it is in eval mode; write "
                    "Int8(Forward()) without training=True"
                )
            if isinstance(part, Compiled):
                raise ConfigurationError(
                    f"{part!r} would compile the copy anew whenever it is made; wrap what is "
                    "inside it, such as Int8(Forward())"
                )

    @property
    def needs(self) -> Needs:
        """What the scorer inside needs, of a copy."""
        return replace(self.scorer.needs, plain_forward=False)

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer, with a copy of the model.

        Raises:
            ConfigurationError: if there is no model, it is not on a CPU, torch has no operations
                in integers here, or the model cannot be copied or has nothing to quantise.
        """
        if context.model is None:
            raise ConfigurationError("Int8() scores with a copy of the model, and there is none")
        model = unwrapped(context.model)
        model = getattr(model, "_orig_mod", model)  # of what torch.compile returned
        device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
        if device.type != "cpu":
            raise ConfigurationError(
                f"Int8 computes on the CPU, and the model is on {device.type}; there, score with "
                "Compiled(LowPrecision(Forward()))"
            )
        if not is_available():
            raise ConfigurationError(
                f"torch {torch.__version__} has no oneDNN operations in int8 on this processor; "
                f"score with {self.scorer!r} itself"
            )
        with kept_random_streams(context.device):  # a trace runs the model's code
            twin = Int8Copy(model)

        def begin(context: Context) -> Pair:
            inner = start_scorer(self.scorer, replace(context, model=twin.model))
            exact = start_scorer(self.scorer, replace(context, checks=False))
            return Pair(_WithIntegers(inner, twin, self), exact, shared=False)

        advice = "Take a smaller recalibrate_every=, more calibration_batches= or every=None"
        return start_checked(
            self, self.check, context, begin, advice=advice, interval=int(self.recalibrate_every)
        )


class _WithIntegers(Delegating):
    def __init__(self, inner: RunningScorer, twin: Int8Copy, spec: Int8) -> None:
        super().__init__(inner)
        self._twin = twin
        self._spec = spec
        self._scored = 0
        self._since = 0  # batches since the running calibration began
        self._gap = 0  # batches from it to the next
        self._before = 0  # changes of a weight since then that were counted elsewhere

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        if self._since >= self._gap or self._moved > self._spec.recalibrate_every:
            self._since, self._gap = 0, self._next_gap()
            self._before = 0
            self._twin.mark()
        calibrating = self._since < self._spec.calibration_batches
        if calibrating or self._copies():
            self._twin.update()
            if calibrating:
                anew = self._since == 0
                self._calibrate(lambda: self.inner.score(batch, indices), anew=anew)
            self._twin.quantise()
        scores = self.inner.score(batch, indices)
        self._scored += 1
        self._since += 1
        return scores

    @property
    def _moved(self) -> int:
        """How often a weight has changed since the running calibration began."""
        return self._twin.changes() + self._before

    def _next_gap(self) -> int:
        least = max(FIRST_GAP, self._spec.calibration_batches)
        return min(self._spec.recalibrate_every, max(least, 2 * self._gap))

    def _copies(self) -> bool:
        if self._spec.every is not None:
            return self._scored % self._spec.every == 0
        return self._scored % UNNOTICED == 0 or self._twin.is_behind()

    def _calibrate(self, score: Callable[[], Scores], *, anew: bool) -> None:
        before = self.inner.state_dict()
        self._twin.observe(anew=anew)
        score()  # for the ranges alone: scores of two precisions would not rank together
        self.inner.load_state_dict(before)

    def state_dict(self) -> dict[str, Any]:
        return {
            "scored": self._scored,
            "since": self._since,
            "gap": self._gap,
            "moved": self._moved,
            "copy": self._twin.weights(),
            "ranges": [list(span) for span in self._twin.ranges()],
            "scorer": self.inner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        *counts, weights, spans, scorer = Saved(state).fields(
            "scored", "since", "gap", "moved", "copy", "ranges", "scorer"
        )
        scored, since, gap, moved = (each.whole() for each in counts)
        tensors = weights.tensors(self._twin.weights())
        pairs = [each.items(2) for each in spans.items(len(self._twin.ranges()))]
        ranges = [(low.number(-math.inf, 0.0), high.number(0.0, math.inf)) for low, high in pairs]
        with loaded([(self.inner, scorer)]):
            self._twin.mark()
            self._twin.resume(tensors, ranges)
            self._scored, self._since, self._gap, self._before = scored, since, gap, moved
