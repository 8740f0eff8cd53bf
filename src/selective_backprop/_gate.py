"""When selection pays: a judgement from scores, where no epoch or fraction can say it ahead."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from selective_backprop._context import Context
from selective_backprop._errors import ConfigurationError
from selective_backprop._saved import Saved
from selective_backprop._types import Scores


class RunningGate(ABC):
    """A gate at work in one training. While it is shut, everything is trained on."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether selection acts."""

    @abstractmethod
    def probes(self) -> bool:
        """Return whether the next candidate batch is to be scored although the gate is shut."""

    @abstractmethod
    def observe(self, scores: Scores) -> None:
        """Take in the scores of a candidate batch."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what the gate must remember to go on later."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""


class AbstractGate(ABC):
    """A gate's specification: immutable, reusable, started once per training."""

    @abstractmethod
    def start(self, context: Context) -> RunningGate:
        """Return the gate at work in the training that `context` describes."""


@final
@dataclass(frozen=True)
class VarianceGate(AbstractGate):
    """Open when importance sampling reduces the variance by more than its scoring costs.

    Sampling in proportion to scores `s` is worth `tau = sqrt(mean(s ** 2)) / mean(s)` times the
    examples. It pays from `tau > (B + 3 b) / (3 b)` on, where B candidates are scored for a
    batch of b and a backward pass costs two forwards. The gate shuts again when it no longer
    does. Reading tau makes the host wait for the device, once for each batch that is scored.

    Args:
        smoothing: how much of the moving average of tau is kept at each observation, in [0, 1).
            The average starts at 0, so that a few observations must agree.
        probe_every: while the gate is shut, one candidate batch in this many is scored; at least
            1. It is trained on like the others.
        threshold: the tau to exceed; None for what scoring costs, by the formula.

    Raises:
        ConfigurationError: if a value is out of its range.

    Source:
        Katharopoulos and Fleuret 2018, arXiv:1803.00942, algorithm 1 and section 3.3.
    """

    smoothing: float = 0.9
    probe_every: int = 10
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.smoothing < 1.0:
            raise ConfigurationError(
                f"smoothing={self.smoothing}: the share of the average that is kept must be in "
                "[0, 1); with 1 it would never move"
            )
        if not self.probe_every >= 1 or self.probe_every % 1:
            raise ConfigurationError(
                f"probe_every={self.probe_every}: one batch in a whole number is scored, at least 1"
            )
        if self.threshold is not None and not 0.0 < self.threshold < float("inf"):
            raise ConfigurationError(f"threshold={self.threshold}: it must be positive and finite")

    def start(self, context: Context) -> RunningGate:
        """Return the running gate."""
        threshold = self.threshold
        if threshold is None:
            batch, window = context.batch_size, context.window or context.batch_size
            threshold = (window + 3 * batch) / (3 * batch)
        return _RunningVarianceGate(self, threshold)


class _RunningVarianceGate(RunningGate):
    def __init__(self, spec: VarianceGate, threshold: float) -> None:
        self._spec = spec
        self._threshold = threshold
        self._tau = 0.0
        self._passed = 0

    @property
    def is_open(self) -> bool:
        return self._tau > self._threshold

    def probes(self) -> bool:
        self._passed += 1
        return self._passed % self._spec.probe_every == 0

    def observe(self, scores: Scores) -> None:
        kept = self._spec.smoothing
        self._tau = kept * self._tau + (1.0 - kept) * float(variance_gain(scores))

    def state_dict(self) -> dict[str, Any]:
        return {"tau": self._tau, "passed": self._passed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        tau, passed = Saved(state).fields("tau", "passed")
        self._tau, self._passed = tau.number(0.0), passed.whole()


def variance_gain(scores: Scores) -> Tensor:
    """Return how many times the examples sampling in proportion to the scores is worth.

    Args:
        scores: at least 0, one per candidate; negative and infinite ones count as 0.

    Returns:
        `sqrt(mean(s ** 2)) / mean(s)`, at least 1, a float64 of no axes; 1 where all are 0.
    """
    scores = scores.double().clamp(min=0.0)
    scores = scores.where(scores.isfinite(), 0.0)
    mean = scores.mean()
    return (scores.square().mean().sqrt() / mean).where(mean > 0.0, 1.0)
