"""The last R scores, and where a score ranks among them."""

from typing import Any

import numpy as np
import torch

from selective_backprop._errors import ConfigurationError
from selective_backprop._types import Odds, Scores


class History:
    """A ring of the most recent scores, kept on the scores' own device.

    Args:
        capacity: how many scores are remembered, R; at least 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ConfigurationError(f"a history holds at least 1 score, got {capacity}")
        self.capacity = capacity
        self._ring: torch.Tensor | None = None
        self._filed = 0

    def __len__(self) -> int:
        return min(self._filed, self.capacity)

    def file(self, scores: Scores) -> None:
        """Remember `scores`, in their order, forgetting the oldest beyond the capacity."""
        if self._ring is None:
            self._ring = scores.new_zeros(self.capacity)
        size, ring, newest = scores.shape[0], *_writable(self._ring, scores)
        newest = newest[max(0, size - self.capacity) :]
        start = (self._filed + size - len(newest)) % self.capacity
        before_wrap = min(len(newest), self.capacity - start)
        ring[start : start + before_wrap] = newest[:before_wrap]
        if before_wrap < len(newest):
            ring[: len(newest) - before_wrap] = newest[before_wrap:]
        self._filed += size

    @property
    def recent(self) -> torch.Tensor:
        """The remembered scores in no particular order, `[recent]`; empty before the first."""
        if self._ring is None:
            return torch.empty(0)
        return self._ring if self._filed >= self.capacity else self._ring[: self._filed]

    def percentiles(self, scores: Scores) -> Odds:
        """Return the share of the remembered scores that is strictly lower than each score.

        Returns:
            Shares in [0, 1], float64, below 1 for every score that is itself remembered; all 1
            where nothing is remembered: nothing is known, so nothing is left out.
        """
        return share_below(scores, self.recent)

    def tie_share(self) -> float:
        """Return the share of the remembered scores that equal another one; reads the device."""
        recent = self.recent
        if len(self) == 0:
            return 0.0
        counts = recent.unique(return_counts=True)[1]
        return 1.0 - int((counts == 1).sum()) / len(self)

    def state_dict(self) -> dict[str, Any]:
        """Return the remembered scores and how many were ever filed."""
        ring = None if self._ring is None else self._ring.clone()
        return {"capacity": self.capacity, "ring": ring, "filed": self._filed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`.

        Raises:
            ConfigurationError: if the state is of a history of another capacity.
        """
        if state["capacity"] != self.capacity:
            raise ConfigurationError(
                f"the state holds a history of {state['capacity']} scores; this one holds "
                f"{self.capacity}. Build the loader with the batch size, rate and history it had."
            )
        self._ring = None if state["ring"] is None else state["ring"].clone()
        self._filed = state["filed"]


def share_below(scores: Scores, recent: torch.Tensor) -> Odds:
    """Return the share of `recent` that is strictly lower than each score; 1 if it is empty."""
    if recent.device.type == "cpu":
        return torch.from_numpy(share_below_on_host(scores, recent))
    if recent.shape[0] == 0:
        return torch.ones_like(scores, dtype=torch.float64)
    return _share_below_on_device(scores, recent)


def share_below_on_host(scores: Scores, recent: torch.Tensor) -> np.ndarray:
    """Do what `share_below` does in NumPy: twice as fast as torch, which sorts indices too."""
    if recent.shape[0] == 0:
        return np.ones(scores.shape[0])
    return np.sort(_array(recent)).searchsorted(_array(scores)) / recent.shape[0]


def _share_below_on_device(scores: Scores, recent: torch.Tensor) -> Odds:
    ranks = torch.searchsorted(recent.sort().values, scores.contiguous())
    return ranks.double() / recent.shape[0]


def _writable(ring: torch.Tensor, scores: torch.Tensor) -> tuple[Any, Any]:
    """Return what shares both tensors' memory and is written soonest."""
    types = {ring.dtype, scores.dtype}
    if ring.device.type == "cpu" and torch.bfloat16 not in types:  # which NumPy does not know
        return ring.numpy(), scores.detach().numpy()  # slices of tensors take five times as long
    return ring, scores


def _array(scores: torch.Tensor) -> np.ndarray:
    if scores.dtype is torch.bfloat16:  # which NumPy does not know
        scores = scores.float()
    return scores.numpy(force=True)
