"""One history of all ranks' scores, for loops whose ranks step together."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from selective_backprop._core.errors import LoaderError
from selective_backprop._core.types import Scores
from selective_backprop._distributed.group import Group
from selective_backprop._distributed.handshake import compare
from selective_backprop._distributed.messages import Exchange, Head, Status
from selective_backprop._memory.history import History


class JointHistory:
    """Rank each rank's candidates against the scores of all ranks.

    Each step makes one exchange: all ranks' scores enter the history in rank order, and then each
    rank ranks its own. All ranks must take equally many steps, as their training must anyway; a
    rank that takes one more waits until the process group times out. The options in `built` must
    be the same on all ranks. The history is known from the first step on.
    """

    def __init__(self, group: Group, built: Mapping[str, object]) -> None:
        self.history: History | None = None
        self._group = group
        self._built = built
        self._exchange: Exchange | None = None
        self._steps = 0

    def open(self, capacity: int, candidates: int, seed: int) -> int:
        """Agree on sizes and on rank 0's seed at the first step; later calls change nothing.

        At least `capacity` scores are remembered for each rank. A rank sends at most as many
        scores as the largest first batch has candidates; of a larger batch it sends the last.
        """
        if self._exchange is not None:
            return seed
        filed = 0 if self.history is None else self.history.filed
        seed = seed % 2**64
        # An unsigned seed of 64 bits wraps around so that it fits the int64 that is sent.
        mine = [candidates, filed, seed - 2**64 * (seed >= 2**63)]
        gathered = compare(self._group, self._built, mine)
        if len({filed for _, filed, _ in gathered}) > 1:
            raise LoaderError(
                f"the ranks' histories hold {', '.join(str(filed) for _, filed, _ in gathered)} "
                "scores; let each rank load its own state of the same moment"
            )
        rows = max(candidates for candidates, _, _ in gathered)
        self._exchange = Exchange(self._group, rows)
        if self.history is None:
            self.history = History(max(capacity, rows) * self._group.size)
        return gathered[0][2] % 2**64

    def file(self, scores: Scores) -> None:
        """Exchange scores, and file those of all ranks; `scores` are this rank's."""
        gathered = self._swap(Status.READY, scores)
        assert self.history is not None
        for own in gathered:
            if len(own):
                self.history.file(own.to(scores.device))

    @contextmanager
    def telling(self) -> Generator[None]:
        """Run the body; if it fails before scores are filed, tell the other ranks."""
        steps = self._steps
        try:
            yield
        except Exception:
            if self._steps == steps:
                with suppress(LoaderError):  # show the body's error, not the exchange's
                    self._swap(Status.FAILED, torch.empty(0))
            raise

    def _swap(self, status: Status, scores: Scores) -> list[Tensor]:
        assert self._exchange is not None
        head = Head(status, 0, self._steps)
        self._steps += 1
        return self._exchange.swap(head, [scores[-self._exchange.rows :]])[1]
