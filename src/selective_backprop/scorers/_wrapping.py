"""What running scorers around another one have in common."""

from collections.abc import Callable
from typing import Any

from selective_backprop._agreement import Agreement
from selective_backprop._types import RowIndices, Scores
from selective_backprop.scorers._abstract import Agreeing, Deferring, Learning, RunningScorer


class RunningWrapper(RunningScorer, Learning, Agreeing):
    """A running scorer around another one, in which all there is to remember is.

    Args:
        inner: the other one.
    """

    def __init__(self, inner: RunningScorer) -> None:
        self._inner = inner

    @property
    def agreement(self) -> Agreement | None:
        """That of the scorer inside."""
        return self._inner.agreement if isinstance(self._inner, Agreeing) else None

    @property
    def checked(self) -> int:
        """Those of the scorer inside."""
        return self._inner.checked if isinstance(self._inner, Agreeing) else 0

    @property
    def so_far(self) -> Agreement | None:
        """That of the scorer inside."""
        return self._inner.so_far if isinstance(self._inner, Agreeing) else None

    def learn(self, batch: Any) -> None:
        """Let the scorer inside learn."""
        if isinstance(self._inner, Learning):
            self._inner.learn(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return what the scorer inside must remember."""
        return self._inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the scorer inside go on from `state_dict()`."""
        self._inner.load_state_dict(state)


class PassingOn(RunningWrapper, Deferring):
    """A running wrapper whose scores are those of the scorer inside."""

    @property
    def ahead(self) -> int:
        """Those of the scorer inside."""
        return ahead_of(self._inner)

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score as the scorer inside does."""
        return self._inner.score(batch, indices)

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        """Begin as the scorer inside does."""
        return begin_with(self._inner, batch, indices)


def ahead_of(running: RunningScorer) -> int:
    """Return how many batches a running scorer begins ahead; 0 where it cannot."""
    return running.ahead if isinstance(running, Deferring) else 0


def begin_with(
    running: RunningScorer, batch: Any, indices: RowIndices | None
) -> Callable[[], Scores]:
    """Begin to score a batch; where a running scorer cannot, it is scored at once."""
    if isinstance(running, Deferring):
        return running.begin(batch, indices)
    scores = running.score(batch, indices)
    return lambda: scores
