"""What a scorer costs on a model, and how far it agrees with exact scores."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from selective_backprop._core.errors import SelectionWarning
from selective_backprop._core.stopwatch import Stopwatch
from selective_backprop._sampling.context import Context
from selective_backprop.experimental import Int8
from selective_backprop.guide._spending import Spent, timed, total_of
from selective_backprop.guide._subject import Subject
from selective_backprop.scorers import AbstractScorer, Forward, RunningScorer
from selective_backprop.scorers._abstract import start_scorer
from selective_backprop.scorers._agreement import Agreement


@dataclass(frozen=True, eq=False)
class Trial:
    """The result of trying a scorer.

    Attributes:
        running: the scorer at work; None if it cannot work here.
        agreement: with exact scores; None if it cannot work here, NaN if no exact score is finite.
        remark: a warning or a note about it, or why it cannot work here; None if there is neither.
    """

    running: RunningScorer | None
    agreement: Agreement | None
    remark: str | None


@dataclass(frozen=True, eq=False)
class ScoringGround:
    """What a scorer is tried on.

    Attributes:
        subject: the copy of the model; only its parameters' version counters change.
        batches: candidate batches, where the copy is.
    """

    subject: Subject
    batches: Sequence[Any]

    def try_out(self, scorer: AbstractScorer) -> Trial:
        """Start a scorer, and compare its scores of all candidates with exact ones.

        Exact scores are computed in full precision.
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                running, exact = self._start(scorer), self._start(Forward())
                scores, truth = (
                    torch.cat([each.score(batch, None) for batch in self.batches])
                    for each in (running, exact)
                )
                agreement = Agreement.between(scores, truth, rate=self.subject.rate)
                if not truth.isfinite().any():  # an agreement would mean nothing
                    agreement = replace(agreement, correlation=math.nan, overlap=math.nan)
            except Exception as error:  # a model of the user's, or a compiler, may raise anything
                return Trial(None, None, f"{type(error).__name__}: {error}")
        said = [str(w.message) for w in caught if issubclass(w.category, SelectionWarning)]
        remark = said[0] if said else None
        if remark is None and isinstance(scorer, Int8):
            remark = (
                f"a calibration costs a forward pass over {calibrating(scorer):.1%} of all "
                "candidates, at first over more; it falls into few rounds, so that no median "
                "shows it"
            )
        return Trial(running, agreement, remark)

    def arm(self, running: RunningScorer, stopwatch: Stopwatch) -> Callable[[], Spent]:
        """Return a scoring pass, in which the weights count as changed before each window."""
        weights = [weight.detach() for weight in self.subject.model.parameters()]

        def run() -> Spent:
            parts: list[Spent] = []
            waiting = list(self.batches)
            while waiting:
                # Counts as a change of the weights, as a training step between windows would.
                torch._foreach_mul_(weights, 1.0)
                scored = 0
                with timed(stopwatch, "score") as spent:
                    while waiting and scored < self.subject.window:
                        scored += len(running.score(waiting.pop(0), None))
                parts.append(Spent(spent, scored=scored))
            return total_of(parts)

        return run

    def _start(self, scorer: AbstractScorer) -> RunningScorer:
        subject = self.subject
        context = Context(
            batch_size=subject.batch_size,
            window=subject.window,
            model=subject.model,
            losses=subject.losses,
            device=subject.device,
            examples=subject.source.examples,
            rate=subject.rate,
        )
        return start_scorer(scorer, context)


def calibrating(scorer: AbstractScorer) -> float:
    """Return the exact forward passes per candidate that calibrating a scorer takes."""
    if isinstance(scorer, Int8):
        return scorer.calibration_batches / scorer.recalibrate_every
    return 0.0
