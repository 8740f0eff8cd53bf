"""The most recent scores, of one rank or of all, and how new scores rank among them."""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from selective_backprop._core.options import check_whole
from selective_backprop._core.saved_state import FLOATS, Saved
from selective_backprop._core.stats import ScoreStats
from selective_backprop._core.types import Float64, Int64, Odds, Scores

Mark = tuple[dict[str, Tensor], int]  # a history's `kept` and `filed`


class History:
    """The most recent scores, in a ring buffer on the scores' own device.

    A subclass can override `weights`, or `remember`, which decides what is kept.

    Args:
        capacity: number of remembered scores, at least 1; R in the Selective-Backprop paper.

    Attributes:
        columns: the names of the tensors in `kept`. The first tensor holds the scores.
        kept: float tensors `[capacity]` by name, without NaN. The first `len(history)` places of
            each are in use. Before the first call of `file`, there are no tensors. These tensors
            and `filed` alone are saved, loaded and shared among processes.
        filed: how many scores `file` has added so far.
    """

    columns: ClassVar[tuple[str, ...]] = ("ring",)

    def __init__(self, capacity: int) -> None:
        self.capacity = int(check_whole("capacity", capacity))
        self.kept: dict[str, Tensor] = {}
        self.filed = 0
        self._forget_answers()

    @property
    def weights(self) -> Tensor | None:
        """The weight of each score in `recent`, above 0; None if all weights are equal."""
        return None

    def __len__(self) -> int:
        return min(self.filed, self.capacity)

    def file(self, scores: Scores) -> None:
        """Add any number of scores, oldest first."""
        if not self.kept:
            self.kept = {name: scores.new_zeros(self.capacity) for name in self.columns}
        self.remember(scores.detach())
        self.filed += scores.shape[0]
        self._sorted = self._mean = None

    def remember(self, scores: Scores) -> None:
        """Put new scores into `kept`, which holds zeros at first; `filed` does not count them yet.

        By default, they replace the oldest ones. If your subclass needs random numbers, take them
        from a generator seeded with `filed`. The host must not wait for the device.
        """
        ring, newest = self.kept["ring"], scores[-self.capacity :]  # no more than fit
        # Where scores lie in the ring follows from how many were ever filed.
        start = (self.filed + len(scores) - len(newest)) % self.capacity
        before, after = newest[: self.capacity - start], newest[self.capacity - start :]
        ring[start : start + len(before)] = before
        if len(after):  # no launch for nothing
            ring[: len(after)] = after

    @property
    def recent(self) -> Tensor:
        """The remembered scores, `[recent]`, in no particular order; empty if there are none."""
        if not self.kept:
            return torch.empty(0)
        scores = self.kept[self.columns[0]]
        return scores if self.filed >= self.capacity else scores[: self.filed]

    def percentiles(self, scores: Scores, *, ties: bool = False) -> Odds:
        """Return, for each score, the share of the remembered scores that are lower.

        Args:
            scores: one per candidate, on the same device as the remembered scores.
            ties: whether remembered scores that equal a score count as lower than it.

        Returns:
            Shares in [0, 1], float64. If remembered scores have weights, these are shares of the
            total weight. If no score is remembered, all shares are 1, as for a score above all
            others. The host does not wait for the device.
        """
        if not self.filed:
            return torch.ones_like(scores, dtype=torch.float64)
        places, shares = self.places(scores, ties=ties)
        return shares.take(places)

    def places(
        self, scores: Scores, *, ties: bool = False
    ) -> tuple[Int64[Tensor, " candidate"], Float64[Tensor, " place"]]:
        """Return how many remembered scores are lower than each score, and each number's share.

        Without weights, the table of shares stays the same object until its length changes.
        """
        if self._sorted is None:
            recent, weights = self.recent, self.weights
            if recent.device.type == "cpu":  # NumPy sorts and searches 30 us faster
                self._sorted = np.sort(_array(recent))
            else:
                self._sorted = recent.sort().values
            if weights is None and len(self._even) != len(recent) + 1:
                numbers = recent.new_ones(len(recent) + 1, dtype=torch.float64).cumsum(0) - 1
                self._even = numbers / len(recent)
            self._shares = self._even
            if weights is not None:
                sums = pad(weights.double()[recent.argsort()].cumsum(0), (1, 0))
                self._shares = sums / sums[-1]
        # The number of lower scores is the place where a score would be inserted, before its ties.
        if isinstance(self._sorted, np.ndarray):
            places = self._sorted.searchsorted(_array(scores), "right" if ties else "left")
            return torch.from_numpy(places), self._shares
        return torch.searchsorted(self._sorted, scores.contiguous(), right=ties), self._shares

    def mean(self) -> Float64[Tensor, ""]:
        """Return the (weighted) mean of the finite remembered scores; NaN without any."""
        if self._mean is None:
            recent, weights = self.recent.detach().double(), self.weights
            finite = recent.isfinite()
            # Masked, not indexed: indexing would make the host wait to learn how many there are.
            values = recent.where(finite, 0.0)
            if weights is not None:
                values, finite = values * weights, finite * weights.double()
            self._mean = values.sum() / finite.sum()
        return self._mean

    def untied(self) -> Int64[Tensor, ""]:
        """Return how many remembered scores equal no other one, on the scores' device."""
        ascending = self.recent.sort().values
        rises = torch.ones(len(ascending) + 1, dtype=torch.bool, device=ascending.device)
        torch.ne(ascending[1:], ascending[:-1], out=rises[1:-1])
        return (rises[1:] & rises[:-1]).sum()

    def summary(self) -> ScoreStats | None:
        """Return a summary of the finite scores; None if there are none. Waits for the device."""
        recent = self.recent.detach().double().numpy(force=True)
        finite = recent[np.isfinite(recent)]
        if not len(finite):
            return None
        deciles = np.quantile(finite, np.linspace(0.0, 1.0, 11))
        return ScoreStats(len(finite), float(finite.mean()), tuple(deciles.tolist()))

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors in `kept`, and `filed`."""
        kept, filed = self.mark()
        return {name: kept.get(name) for name in self.columns} | {"filed": filed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`. A damaged or foreign state is refused, changing nothing."""
        filed, *columns = Saved(state).fields("filed", *self.columns)
        if columns[0].value is None:
            return self.go_back(({}, filed.whole(0, 0)))
        loaded = [each.tensor(*FLOATS, shape=(self.capacity,)).clone() for each in columns]
        self.go_back((dict(zip(self.columns, loaded, strict=True)), filed.whole()))

    def mark(self) -> Mark:
        """Return a snapshot for `go_back`, without waiting for the device."""
        return {name: column.clone() for name, column in self.kept.items()}, self.filed

    def go_back(self, mark: Mark) -> None:
        """Go back to a snapshot that `mark` returned. Its tensors are used without a copy."""
        self.kept, self.filed = mark
        self._forget_answers()

    def _forget_answers(self) -> None:
        self._sorted: np.ndarray | Tensor | None = None
        self._even = self._shares = torch.empty(0)  # the share of each number of lower scores
        self._mean: Tensor | None = None


class SharedHistory:
    """A history that is the same on all ranks after each exchange.

    Scores that this rank files go in at once, so that a window is ranked against itself too. At the
    next exchange they are taken out again, and the `most` newest scores of each rank go in.
    """

    def __init__(self, history: History, most: int, device: torch.device | None) -> None:
        self._history, self._most = history, most
        self._device = torch.device("cpu") if device is None else device
        self._own: list[Tensor] = []
        self._before: Mark | None = None

    def file(self, scores: Scores) -> None:
        if self._before is None:
            self._before = self._history.mark()
        self._history.file(scores)
        self._own.append(scores)

    def retract(self) -> list[Tensor]:
        own, self._own = self._own, []
        if self._before is not None:
            self._history.go_back(self._before)
            self._before = None
        return [torch.cat(own)[-self._most :]] if own else []

    def file_all(self, scores: list[Tensor]) -> None:
        for own in scores:
            if len(own):
                self._history.file(own.to(self._device))


def load_history(kind: type[History], saved: Saved) -> History:
    _, scores, *_ = saved.fields("filed", *kind.columns)
    history = kind(len(scores.tensor(*FLOATS, shape=(None,), nan=True)))
    with saved.inside():
        history.load_state_dict(saved.value)
    return history


def _array(scores: Tensor) -> np.ndarray:
    # NumPy has no bfloat16.
    return (scores.float() if scores.dtype is torch.bfloat16 else scores).numpy(force=True)
