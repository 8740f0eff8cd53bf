"""Compare cheap scores with exact ones now and then, and warn where they do not agree."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from selective_backprop._core.errors import warn
from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Scores
from selective_backprop.scorers._agreement import Agreement, measure

UNKNOWN_RATE = 1 / 3


@final
@dataclass(frozen=True)
class Check:
    """When a cheap scorer is compared with the exact one, and which agreement is too low.

    The candidates of some batches are scored a second time, exactly, which costs what it costs
    and is counted in `Stats.checked`. Training goes on with the cheap scores. What is found is in
    `SelectiveLoader.agreement`; it may change as the model learns, so look again with `every`.

    Args:
        batches: how many batches are scored both ways, at least 1, from the first scored one on.
        every: after so many scored batches it is all done again; None checks once. More than
            `batches`.
        least: a lower overlap of the highest scores is warned of, in [0, 1]; 0 never warns.
        rate: which share of a batch counts as the highest, in (0, 1]; None for the share that
            the training selects, a third where that is not known.

    Raises:
        ConfigurationError: if a value is out of its range.
    """

    batches: int = 8
    every: int | None = None
    least: float = 0.8
    rate: float | None = None

    def __post_init__(self) -> None:
        settle(self, check_whole, "batches", hint="check=None checks nothing")
        again = self.batches + 1
        settle(self, check_whole, "every", least=again, optional=True, hint="None checks once")
        settle(self, check_number, "least", most=1)
        settle(self, check_number, "rate", above=0, most=1, optional=True)


class Comparison:
    """A check at work.

    Args:
        check: when to compare, and which agreement is too low.
        rate: the share that the training selects, or None if that is not known.
        name: of the cheap scorer, for the warning.
        advice: what to do where agreement is low, for the warning.
        stride: only every so many scored batches one is compared, where a cheap scorer is not
            equally exact all the time.

    Attributes:
        agreement: what the last check found, or None before the first has ended.
        checked: candidates scored a second time so far.
    """

    def __init__(
        self, check: Check, rate: float | None, *, name: str, advice: str, stride: int = 1
    ) -> None:
        self._check = check
        self._rate = check.rate or rate or UNKNOWN_RATE
        self._name = name
        self._advice = advice
        self._stride = stride
        self._scored = 0
        self._sums: Tensor | None = None  # of each measure, on the scores' device
        self._batches = 0
        self._candidates = 0
        self._resting = False
        self.agreement: Agreement | None = None
        self.checked = 0

    def follow(self, scores: Scores, exactly: Callable[[], Scores]) -> None:
        """Count a scored batch, and compare its scores where that is due.

        Args:
            scores: of the batch, cheap.
            exactly: returns its exact scores; called only where they are needed.
        """
        every = self._check.every
        if self._resting and every is not None and self._scored % every == 0:
            self._resting = False
        if not self._resting and self._scored % self._stride == 0 and scores.shape[0]:
            self._compare(scores, exactly())
        self._scored += 1

    def _compare(self, scores: Scores, exact: Scores) -> None:
        measured = measure(scores, exact.to(scores.device), self._rate)
        self._sums = measured if self._sums is None else self._sums.to(measured.device) + measured
        self._batches += 1
        self._candidates += scores.shape[0]
        self.checked += scores.shape[0]
        if self._batches == self._check.batches:
            self._conclude(self._sums)

    @property
    def so_far(self) -> Agreement | None:
        """What the check that runs has found so far, else what the last found."""
        return self.agreement if self._sums is None else self._read(self._sums)

    def _read(self, sums: Tensor) -> Agreement:
        """Return the means, for which it waits for the device."""
        correlation, overlap = (sums / self._batches).tolist()
        return Agreement(correlation, overlap, self._rate, self._batches, self._candidates)

    def _conclude(self, sums: Tensor) -> None:
        """Read the means, and rest."""
        found = self.agreement = self._read(sums)
        self._sums, self._batches, self._candidates, self._resting = None, 0, 0, True
        if found.overlap < self._check.least:
            warn(
                f"{self._name} agrees with exact scoring on {found.overlap:.0%} of the highest "
                f"{found.rate:.0%} of the candidates, less than least={self._check.least} (rank "
                f"correlation {found.correlation:.2f}; {found.batches} batches, {found.candidates} "
                "candidates): other examples are selected than exact scores would select. "
                f"{self._advice}, or accept it with check=Check(least=...).",
            )

    def state_dict(self) -> dict[str, Any]:
        """Return where the check stands."""
        found = self.agreement
        return {
            "scored": self._scored,
            "sums": None if self._sums is None else self._sums.tolist(),
            "batches": self._batches,
            "candidates": self._candidates,
            "resting": self._resting,
            "checked": self.checked,
            "found": None if found is None else dict(vars(found)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        scored, sums, batches, candidates, resting, checked, found = Saved(state).fields(
            "scored", "sums", "batches", "candidates", "resting", "checked", "found"
        )
        most = int(self._check.batches)

        def read(both: Saved) -> list[float]:
            correlation, overlap = both.items(2)  # up to 1 a batch, and what rounding adds
            return [correlation.number(-most - 1, most + 1), overlap.number(0, most + 1)]

        values = sums.maybe(read)
        ends = (0, 0) if values is None else (1, most - 1)
        agreement = found.maybe(lambda each: each.record(Agreement, correlation=(-2.0, 2.0)))
        standing = scored.whole(), batches.whole(*ends), candidates.whole(), resting.flag()
        self.checked = checked.whole()
        self._scored, self._batches, self._candidates, self._resting = standing
        self._sums = None if values is None else torch.tensor(values, dtype=torch.float64)
        self.agreement = agreement
