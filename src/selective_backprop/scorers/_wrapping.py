"""What running scorers around another one have in common."""

from typing import Any

from selective_backprop._agreement import Agreement
from selective_backprop.scorers._abstract import Agreeing, Learning, RunningScorer


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
