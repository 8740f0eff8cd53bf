"""A history that all ranks share, with this rank's own newest scores on top."""

import torch
from torch import Tensor

from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History


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
        self._own: list[Tensor] = []
        self._before: tuple[Tensor | None, int] | None = None

    def file(self, scores: Scores) -> None:
        """Remember scores of this rank until the next exchange."""
        if self._before is None:
            self._before = self._history.mark()
        self._history.file(scores)
        self._own.append(scores)
        # The oldest piece goes once the later ones are enough for an exchange.
        while sum(map(len, self._own[1:])) >= self._most:
            del self._own[0]

    def retract(self) -> list[Tensor]:
        """Take out what this rank has filed since the last exchange, and return the newest."""
        own, self._own = self._own, []
        if self._before is not None:
            self._history.go_back(self._before)
            self._before = None
        if own:
            # A message holds at most this many, so the oldest piece may have to be cut.
            own[0] = own[0][max(0, sum(map(len, own)) - self._most) :]
        return own

    def settle(self, scores: list[Tensor]) -> None:
        """Remember the scores of all ranks, one tensor from each."""
        for own in scores:
            if len(own):
                self._history.file(own.to(self._device))
