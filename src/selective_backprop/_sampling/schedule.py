"""When to select, and when to train on everything: schedules, and gates that decide from scores."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, final

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance, check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import NO_TARGET, Scores
from selective_backprop._sampling.context import Context, Running


class RunningGate(Running):
    """A gate at work in one training run; while it is shut, everything is trained on.

    An open gate observes the scores of every batch. A shut gate observes only the batches that
    `probes` asks for, and those whose losses or outputs your loop passes to the loader.
    """

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether to select."""

    @abstractmethod
    def probes(self) -> bool:
        """Return whether to score the next batch, although the gate is shut; asked once each."""

    @abstractmethod
    def observe(self, scores: Scores) -> None:
        """Take in the scores of a whole batch; those of rows without a target are -2^100."""


class AbstractGate(ABC):
    """The settings of a gate. They never change; each training run calls `start` once."""

    @abstractmethod
    def start(self, context: Context) -> RunningGate:
        """Return a new `RunningGate` for the training that `context` describes."""


class Phase(Enum):
    """What happens to a candidate batch. This is decided when its indices are drawn.

    `PLAIN`: all of it is trained on, after rows that wait. `SELECT`: rows are selected from it.
    `PRESELECTED`: it was selected before loading. `RESCORE`: it is only scored, for later epochs.
    """

    PLAIN = "plain"
    SELECT = "select"
    PRESELECTED = "chosen"
    RESCORE = "rescore"


@dataclass(frozen=True)
class Schedule:
    """When to select: after the warm-up epochs, and between `start` and `end` of training.

    Fractions of training count the examples that your data loader offers, not optimiser steps. So
    they do not depend on how many examples are skipped.

    Args:
        warmup_epochs: number of whole epochs at the beginning that train on everything.
        start: fraction of training, in [0, 1), before which everything is trained on.
        end: fraction of training, in (`start`, 1], from which everything is trained on again.
        gate: decides from scores whether selection pays at the moment; None always selects.
    """

    warmup_epochs: int = 0
    start: float = 0.0
    end: float = 1.0
    gate: AbstractGate | None = None

    def __post_init__(self) -> None:
        hint = "use start= for a fraction of training"
        settle(self, check_whole, "warmup_epochs", least=0, hint=hint)
        settle(self, check_number, "start", below=1)
        settle(self, check_number, "end", above=0, most=1)
        if not self.start < self.end:
            raise ConfigurationError(
                f"0 <= start < end <= 1 is needed, got start={self.start}, end={self.end}"
            )
        check_instance("gate", self.gate, AbstractGate, "VarianceGate()", optional=True)

    @property
    def uses_fractions(self) -> bool:
        """Whether `start` or `end` is used; if so, the length of training must be known."""
        return self.start > 0.0 or self.end < 1.0

    def check_length(self, epochs: float | None, batches: int | None) -> None:
        """Refuse a training of so many epochs, and batches in each, that never selects."""
        if epochs is None:
            return
        if self.warmup_epochs >= epochs * self.end:
            raise ConfigurationError(
                f"warmup_epochs={self.warmup_epochs} leaves nothing to select in {epochs:g} epochs "
                f"with end={self.end}; train longer, or, if a strategy scores each batch, with "
                "fewer warmup_epochs"
            )
        if batches is None or not self.uses_fractions:
            return
        total = epochs * batches
        # The first batch is drawn at progress 0, before any start above 0. Subtracting 1e-9 keeps
        # a product that should be whole from being rounded up to the next batch.
        start = max(self.start > 0.0, math.ceil(self.start * total - 1e-9))
        first = max(self.warmup_epochs * batches, start)
        if first >= total or first / total >= self.end:
            raise ConfigurationError(
                f"start={self.start} and end={self.end} leave none of {total:g} batches to select "
                "from; train longer, or move start and end apart"
            )

    def selects(self, epoch: int, progress: float | None) -> bool:
        """Return whether to select now, gate aside; `progress` is the fraction of training done."""
        if epoch < self.warmup_epochs or not self.uses_fractions:
            return epoch >= self.warmup_epochs
        return progress is not None and self.start <= progress < self.end


@final
@dataclass(frozen=True)
class VarianceGate(AbstractGate):
    """Select while importance sampling reduces the gradient's variance enough to pay for scoring.

    One example drawn in proportion to the scores `s` is worth `tau` uniformly drawn examples, where
    `tau` is `sqrt(mean(s ** 2)) / mean(s)`. If B examples are scored for a batch of b rows,
    sampling pays if `tau > (B + 3 b) / (3 b)`, as a backward pass costs about two forward passes.

    Until sampling pays, everything is trained on, and tau is computed from the losses or outputs
    that your loop passes to the loader. If it passes none, some batches are scored to compute tau.
    A batch's tau takes effect from the next batch on; on CUDA, B / b batches later.

    Args:
        smoothing: weight of the old value in the moving average of tau, in [0, 1). The average
            starts at 0, so with a high smoothing, one high tau does not start selection.
        probe_every: a whole number of at least 1. While sampling does not pay, one in this many
            batches is scored, and all of its rows are trained on. The count begins anew when your
            loop passes a batch's losses or outputs.
        threshold: select while the average of tau is above this; None takes `(B + 3 b) / (3 b)`.

    Source:
        Katharopoulos and Fleuret 2018, arXiv:1803.00942, algorithm 1 and section 3.3. The smoothing
        and the formula for the threshold are as in the authors' code.
    """

    smoothing: float = 0.9
    probe_every: int = 10
    threshold: float | None = None

    def __post_init__(self) -> None:
        settle(self, check_number, "smoothing", below=1, hint="with 1 it would never move")
        settle(self, check_whole, "probe_every")
        settle(self, check_number, "threshold", above=0, optional=True)

    def start(self, context: Context) -> RunningGate:
        threshold, batch = self.threshold, context.batch_size
        window = context.window or batch
        if threshold is None:
            # Scoring B candidates and a step on b rows cost B + 3 b forward passes; a step on b
            # uniformly drawn rows costs 3 b. Tau must exceed the ratio of these costs.
            threshold = (window + 3 * batch) / (3 * batch)
        return RunningAverage(self, threshold, variance_gain, lag=max(1, round(window / batch)))


class RunningAverage(RunningGate):
    """Open while the average of a batch's gain, as of its scores, is above a threshold."""

    def __init__(
        self, spec: VarianceGate, threshold: float, gain: Callable[[Scores], Tensor], lag: int = 1
    ) -> None:
        self._spec, self._gain = spec, gain
        self._threshold = threshold
        self._lag = lag  # so many observations from a GPU follow one before it is read
        self._tau = 0.0
        self._passed = 0  # candidate batches since the last observation
        self._asked = False
        # The taus that are not yet in the average, and when each has arrived from a GPU.
        self._gains: deque[tuple[Tensor, torch.cuda.Event | None]] = deque()
        self._late = False  # whether they come from a GPU

    @property
    def is_open(self) -> bool:
        self._take_in()
        return self._tau > self._threshold

    def probes(self) -> bool:
        self._passed += 1
        self._asked = self._passed > 0 and self._passed % self._spec.probe_every == 0
        return self._asked

    def observe(self, scores: Scores) -> None:
        # The loop handed this batch over, and probably will the next: counting from -1 omits that.
        self._passed = 0 if self._asked or self.is_open else -1
        self._asked, gain, arrived = False, self._gain(scores), None
        self._late = gain.is_cuda
        if gain.is_cuda:
            stream = torch.cuda.current_stream(gain.device)
            gain = gain.to("cpu", non_blocking=True)
            arrived = stream.record_event()
        self._gains.append((gain, arrived))

    def _take_in(self) -> None:
        kept = self._spec.smoothing  # a_tau in the authors' code
        while len(self._gains) > (self._lag if self._late else 0):
            self._tau = kept * self._tau + (1.0 - kept) * _read(*self._gains.popleft())

    def state_dict(self) -> dict[str, Any]:
        self._take_in()
        late = [_read(*each) for each in self._gains]
        return {"tau": self._tau, "passed": self._passed, "late": late}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        tau, passed, late = Saved(state).fields("tau", "passed", "late")
        gains = [torch.tensor(gain.number(0.0), dtype=torch.float64) for gain in late.items()]
        self._tau, self._passed, self._late = tau.number(0.0), passed.whole(least=-1), bool(gains)
        self._gains.clear()
        self._gains.extend((gain, None) for gain in gains)


def _read(gain: Tensor, arrived: torch.cuda.Event | None) -> float:
    if arrived is not None and not arrived.query():
        arrived.synchronize()
    return float(gain)


def variance_gain(scores: Scores) -> Tensor:
    """Return tau, or 1 if all scores are 0; negative ones, and those from 1e150 on, count as 0."""
    scores = scores.double()  # squares of float16 scores would overflow
    rows = (scores != NO_TARGET).sum()
    scores = scores.clamp(min=0.0)
    scores = scores.where(scores < 1e150, 0.0)  # squares of higher ones would be infinite
    mean = scores.sum() / rows
    # 0 / 0 if all scores are 0. Then all examples are alike, so drawing by score gains nothing.
    return ((scores.square().sum() / rows).sqrt() / mean).where(mean > 0.0, 1.0)
