"""How many examples went where: one frozen snapshot, read by the lab, the adapters and logs."""

from dataclasses import dataclass, replace
from typing import Any

STATS_RANGES = {"epoch": (-1, 2**31 - 2), "ties": (0.0, 1.0)}  # all others are 0 or more
TRAINED = 3  # forward passes that training on an example takes: a backward counts as two
PRESENT = ("epoch", "ties")  # describe the present and count nothing


@dataclass(frozen=True)
class Stats:
    """Counts since training began, up to the batch that the training loop received last.

    Attributes:
        epoch: number of the current or last epoch, from 0; -1 before the first.
        candidates: examples that came up for training, loaded or not.
        loaded: examples that were loaded.
        scored: examples that were scored by a forward pass.
        checked: scored examples that were scored a second time, exactly, to check a cheap scorer.
        observed: examples whose scores a gate took from training, without a scoring pass. (A gate
            decides when to select.)
        expired: candidates that were scored because their remembered score was too old or missing.
        kept: examples handed out in training batches.
        batches: training batches handed out.
        waiting: candidates that wait for a full window, rows that wait for a full batch, and a
            batch that waits because another rank had none.
        dropped: examples discarded by `leftovers="drop"`, or by `"flush"` if another rank had no
            batch left.
        beyond: examples of this rank's shard that never came up, because another rank's epoch
            ended first. No other count includes them. 0 if the sampler has no length.
        nonfinite: examples skipped because their loss was not finite.
        ties: share of the recent scores that equal another recent score, at the last epoch's end.
    """

    epoch: int = -1
    candidates: int = 0
    loaded: int = 0
    scored: int = 0
    checked: int = 0
    observed: int = 0
    expired: int = 0
    kept: int = 0
    batches: int = 0
    waiting: int = 0
    dropped: int = 0
    beyond: int = 0
    nonfinite: int = 0
    ties: float = 0.0

    @property
    def rate(self) -> float:
        """The share of candidates that were kept, in [0, 1]; waiting candidates are left out.

        NaN while all candidates wait.
        """
        decided = self.candidates - self.waiting
        return self.kept / decided if decided else float("nan")

    @property
    def cost(self) -> int:
        """The cost of scoring and training, in forward passes of one example.

        Scoring an example counts as one, even with a cheap scorer. Training on an example counts as
        three: one for the forward pass, two for the backward pass.
        """
        return self.scored + self.checked + TRAINED * self.kept

    @property
    def plain_cost(self) -> int:
        """The cost of training on every candidate instead, in forward passes of one example."""
        return TRAINED * self.candidates

    def since(self, earlier: "Stats") -> "Stats":
        """Return how much each count has grown since an earlier snapshot.

        `epoch` and `ties` keep their present values.
        """
        counts = {name: now for name, now in vars(self).items() if name not in PRESENT}
        return replace(self, **{name: n - getattr(earlier, name) for name, n in counts.items()})


class Tally(dict[str, Any]):
    """Counts by the names of `Stats`, which grow."""

    def __init__(self) -> None:
        super().__init__(vars(Stats()))

    def count(self, **increments: int) -> None:
        """Add to what was counted."""
        for name, more in increments.items():
            self[name] += more


@dataclass(frozen=True)
class ScoreStats:
    """A summary of many scores; scores that are not finite are left out.

    Attributes:
        count: how many finite scores there are, at least 1.
        mean: their mean.
        deciles: the lowest score, the nine values that cut the scores into tenths, and the highest
            score, `[11]`.
    """

    count: int
    mean: float
    deciles: tuple[float, ...]


@dataclass(frozen=True)
class StepStats:
    """Counts since training began.

    Attributes:
        steps: steps that were taken.
        candidates: rows that came up.
        kept: rows that were selected.
        nonfinite: rows skipped because their loss was not finite.
    """

    steps: int = 0
    candidates: int = 0
    kept: int = 0
    nonfinite: int = 0
