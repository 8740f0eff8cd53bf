"""Counts of examples, as frozen snapshots that the lab, the adapters and logs read."""

from dataclasses import dataclass, replace

TRAINED = 3  # forward passes that training on an example takes: a backward counts as two


@dataclass(frozen=True)
class Stats:
    """Counts since training began, up to the batch that your training loop received last.

    Printed, they are one sentence, which counts epochs from 1; their `repr` shows every count.

    Attributes:
        epoch: number of the current or last epoch, from 0; -1 before the first epoch.
        candidates: examples that came up for training, loaded or not; each epoch counts them again.
        loaded: examples that were loaded.
        scored: examples scored by a forward pass; the first batch always is, to check its losses.
        checked: examples that were also scored exactly, to check an approximate scorer.
        observed: examples whose scores a gate (which decides when to select) took from steps.
        expired: candidates that were scored because their remembered score was too old or missing.
        kept: examples handed out in training batches.
        batches: training batches handed out.
        waiting: examples that wait for more candidates, a full batch, or another process's batch.
        dropped: examples that `leftovers="drop"` discarded, or "flush" if another process ended.
        beyond: examples of this process's shard that never came up, because another process's
            epoch ended first. No other count includes them. Always 0 if the sampler has no length.
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

    def __str__(self) -> str:
        if self.epoch < 0:
            return "before the first epoch"
        shown = f"{_trained_on(self)}, {self.batches:,} batch{'es' * (self.batches != 1)}"
        more = {name: getattr(self, name) for name in ("scored", "waiting", "dropped", "nonfinite")}
        shown += "".join(f", {number:,} {name}" for name, number in more.items() if number)
        return f"up to epoch {self.epoch + 1}: {shown}"

    @property
    def rate(self) -> float:
        """Kept examples, as a share of the candidates that no longer wait; NaN if all wait."""
        decided = self.candidates - self.waiting
        return self.kept / decided if decided else float("nan")

    @property
    def cost(self) -> int:
        """The cost of scoring and training, in forward passes of one example.

        Scoring an example counts as one, even if the scorer computes less than a forward pass.
        Training on an example counts as three: one for the forward, two for the backward pass.
        """
        return self.scored + self.checked + TRAINED * self.kept

    @property
    def plain_cost(self) -> int:
        """The cost of training on every candidate, in the same unit as `cost`."""
        return TRAINED * self.candidates

    def since(self, earlier: "Stats") -> "Stats":
        """Return how counts have grown since a snapshot; `epoch` and `ties` stay as they are."""
        names = vars(self).keys() - {"epoch", "ties"}
        grown = {name: getattr(self, name) - getattr(earlier, name) for name in names}
        return replace(self, **grown)


@dataclass(frozen=True)
class ScoreStats:
    """A summary of many scores; scores that are not finite are left out.

    Attributes:
        count: number of finite scores, at least 1.
        mean: mean of the finite scores.
        deciles: 11 numbers: the lowest score, the nine deciles, and the highest score.
    """

    count: int
    mean: float
    deciles: tuple[float, ...]


@dataclass(frozen=True)
class StepStats:
    """What a `SelectiveStep` has counted since training began.

    Attributes:
        steps: calls of the step.
        candidates: rows of all batches that the step was given.
        kept: rows that were selected.
        nonfinite: rows skipped because their loss was not finite.
    """

    steps: int = 0
    candidates: int = 0
    kept: int = 0
    nonfinite: int = 0

    def __str__(self) -> str:
        return f"{_trained_on(self)}, {self.steps:,} step{'s' * (self.steps != 1)}"


def _trained_on(counts: Stats | StepStats) -> str:
    share = f" ({100 * counts.kept / counts.candidates:.0f} %)" if counts.candidates else ""
    return f"{counts.kept:,} of {counts.candidates:,} trained on{share}"
