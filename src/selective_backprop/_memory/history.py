"""The last R scores, of one rank or of all, and where a score ranks among them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_whole
from selective_backprop._core.saved_state import FLOATS, MOST, Saved
from selective_backprop._core.stats import ScoreStats
from selective_backprop._core.types import Float64, Odds, Scores


class History:
    """A ring of the most recent scores, kept on the scores' own device.

    Its answers are kept until something is filed, so that many windows ranked against an
    unchanged history sort it only once.

    Args:
        capacity: how many scores are remembered, R; at least 1.

    Raises:
        ConfigurationError: if the capacity is not a whole number, or below 1.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = int(check_whole("capacity", capacity))
        self._ring: torch.Tensor | None = None
        self._filed = 0
        self._forget_answers()

    def __len__(self) -> int:
        return min(self._filed, self.capacity)

    def file(self, scores: Scores) -> None:
        """Remember `scores`, in their order, forgetting the oldest beyond the capacity."""
        if self._ring is None:
            self._ring = scores.new_zeros(self.capacity)
        size, ring, newest = scores.shape[0], *_writable(self._ring, scores)
        newest = newest[max(0, size - self.capacity) :]  # no more than fit
        # Where the last of the newest will lie is given by how many were ever filed.
        start = (self._filed + size - len(newest)) % self.capacity
        before_wrap = min(len(newest), self.capacity - start)
        ring[start : start + before_wrap] = newest[:before_wrap]
        if before_wrap < len(newest):
            ring[: len(newest) - before_wrap] = newest[before_wrap:]
        self._filed += size
        self._forget_answers()

    @property
    def filed(self) -> int:
        """How many scores were ever filed."""
        return self._filed

    @property
    def recent(self) -> torch.Tensor:
        """The remembered scores in no particular order, `[recent]`; empty before the first."""
        if self._ring is None:
            return torch.empty(0)
        return self._ring if self._filed >= self.capacity else self._ring[: self._filed]

    def percentiles(self, scores: Scores, *, ties: bool = False) -> Odds:
        """Return the share of the remembered scores that is lower than each score.

        Args:
            scores: one per candidate, on the device of the remembered ones.
            ties: count equal scores as lower too, instead of strictly lower ones alone.

        Returns:
            Shares in [0, 1], float64. Unless ties count, a score that is itself remembered has
            less than 1. All are 1 where nothing is remembered: nothing is known, so nothing is
            left out. Found without a host synchronisation.
        """
        if not len(self):
            return torch.ones_like(scores, dtype=torch.float64)
        if self.recent.device.type == "cpu":  # NumPy is twice as fast as torch, which sorts indices
            return torch.from_numpy(self.percentiles_on_host(scores, ties=ties))
        if self._sorted is None:
            self._sorted = self.recent.sort().values
        return _rank_on_device(scores, self._sorted, ties=ties)

    def percentiles_on_host(self, scores: Scores, *, ties: bool = False) -> np.ndarray:
        """Do what `percentiles` does in NumPy, for scores in the host's memory."""
        if self._sorted_on_host is None:
            if not len(self):
                return np.ones(scores.shape[0])
            self._sorted_on_host = _sort_on_host(self.recent)
        ascending, side = self._sorted_on_host, "right" if ties else "left"
        # How many are lower is the place where a score would be put in; "left" is before its ties.
        return ascending.searchsorted(_array(scores), side) / len(ascending)

    def mean(self) -> Float64[Tensor, ""]:
        """Return the mean of those remembered scores that are finite.

        Returns:
            A float64 scalar on the scores' device, NaN where no finite score is remembered;
            found without a host synchronisation.
        """
        if self._mean is None:
            recent = self.recent.detach().double()
            finite = recent.isfinite()
            # Masked and not indexed, which would make the host wait for the number of them.
            self._mean = recent.where(finite, 0.0).sum() / finite.sum()
        return self._mean

    def tie_share(self) -> float:
        """Return the share of the remembered scores that equal another one; reads the device."""
        recent = self.recent
        if len(self) == 0:
            return 0.0
        counts = recent.unique(return_counts=True)[1]
        return 1.0 - int((counts == 1).sum()) / len(self)  # what is there once is no tie

    def summary(self) -> ScoreStats | None:
        """Return a summary of the finite scores, or None if there are none; reads the device."""
        recent = self.recent.detach().double().numpy(force=True)
        finite = recent[np.isfinite(recent)]
        if not len(finite):
            return None
        deciles = np.quantile(finite, np.linspace(0.0, 1.0, 11))
        return ScoreStats(len(finite), float(finite.mean()), tuple(deciles.tolist()))

    def state_dict(self) -> dict[str, Any]:
        """Return the remembered scores and how many were ever filed."""
        ring, filed = self.mark()
        return {"capacity": self.capacity, "ring": ring, "filed": filed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`.

        Raises:
            ConfigurationError: if the state is of a history of another capacity, or damaged; this
                history then stays as it was.
        """
        capacity, ring, filed = Saved(state).fields("capacity", "ring", "filed")
        if capacity.whole(1) != self.capacity:
            raise ConfigurationError(
                f"the state holds a history of {state['capacity']} scores; this one holds "
                f"{self.capacity}. Build the loader with the batch size, rate and history it had."
            )
        scores = ring.maybe(lambda each: each.tensor(*FLOATS, shape=(self.capacity,)).clone())
        self.go_back((scores, filed.whole(0, 0 if scores is None else MOST)))

    def mark(self) -> tuple[torch.Tensor | None, int]:
        """Return a snapshot for `go_back`, without waiting for the device."""
        return None if self._ring is None else self._ring.clone(), self._filed

    def go_back(self, mark: tuple[torch.Tensor | None, int]) -> None:
        """Return to a snapshot that `mark` took; its tensor is used from now on, not copied."""
        self._ring, self._filed = mark
        self._forget_answers()

    def _forget_answers(self) -> None:
        self._sorted: torch.Tensor | None = None
        self._sorted_on_host: np.ndarray | None = None
        self._mean: torch.Tensor | None = None


class SharedHistory:
    """A history that is the same on all ranks after each exchange.

    Scores that this rank files go in at once, so that a window is ranked against itself. They
    stay only until the next exchange: then they are taken out, and the scores of all ranks go in,
    in the order of the ranks. The `most` newest scores are exchanged; older ones are forgotten.
    Scores are on `device`; None stands for the host's memory.
    """

    def __init__(self, history: History, most: int, device: torch.device | None) -> None:
        self._history = history
        self._most = most
        self._device = torch.device("cpu") if device is None else device
        self._own: list[torch.Tensor] = []
        self._before: tuple[torch.Tensor | None, int] | None = None

    def file(self, scores: Scores) -> None:
        """Remember scores of this rank until the next exchange."""
        if self._before is None:
            self._before = self._history.mark()
        self._history.file(scores)
        self._own.append(scores)
        # The oldest piece goes once the later ones are enough for an exchange.
        while sum(map(len, self._own[1:])) >= self._most:
            del self._own[0]

    def retract(self) -> list[torch.Tensor]:
        """Take out what this rank has filed since the last exchange, and return the newest."""
        own, self._own = self._own, []
        if self._before is not None:
            self._history.go_back(self._before)
            self._before = None
        if own:
            # A message holds at most this many, so the oldest piece may have to be cut.
            own[0] = own[0][max(0, sum(map(len, own)) - self._most) :]
        return own

    def file_all(self, scores: list[torch.Tensor]) -> None:
        """Remember the scores of all ranks, one tensor from each."""
        for own in scores:
            if len(own):
                self._history.file(own.to(self._device))


def share_below(scores: Scores, recent: torch.Tensor) -> Odds:
    """Return the share of `recent` that is strictly lower than each score; 1 if it is empty."""
    history = History(max(1, recent.shape[0]))
    history.file(recent)
    return history.percentiles(scores)


def _sort_on_host(recent: torch.Tensor) -> np.ndarray:
    ascending = _array(recent).copy()
    ascending.sort()  # in place, which takes a tenth less time than np.sort
    return ascending


def _rank_on_device(scores: Scores, ascending: torch.Tensor, *, ties: bool) -> Odds:
    ranks = torch.searchsorted(ascending, scores.contiguous(), right=ties)
    return ranks.double() / ascending.shape[0]


def _writable(ring: torch.Tensor, scores: torch.Tensor) -> tuple[Any, Any]:
    """Return views of both tensors' memory, of the kind that is fastest to write."""
    types = {ring.dtype, scores.dtype}
    if ring.device.type == "cpu" and torch.bfloat16 not in types:  # NumPy has no bfloat16
        return ring.numpy(), scores.detach().numpy()  # slices of tensors take five times as long
    return ring, scores.detach()


def _array(scores: torch.Tensor) -> np.ndarray:
    if scores.dtype is torch.bfloat16:  # NumPy has no bfloat16
        scores = scores.float()
    return scores.numpy(force=True)
