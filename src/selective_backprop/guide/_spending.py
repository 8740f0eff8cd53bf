"""What a piece of training took: its seconds by phase, its scored candidates and its steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selective_backprop._core.stopwatch import Stopwatch

Clock = Callable[[], float]


@dataclass(frozen=True)
class Spent:
    """What an arm took in a round.

    Attributes:
        phases: seconds of each phase.
        scored: candidates that were scored.
        steps: training steps.
    """

    phases: Mapping[str, float]
    scored: float = 0
    steps: float = 0

    @property
    def seconds(self) -> float:
        """Seconds of the whole work."""
        return sum(self.phases.values())


def total_of(parts: Sequence[Spent]) -> Spent:
    """Return what several parts took together."""
    names = dict.fromkeys(name for each in parts for name in each.phases)
    return Spent(
        {name: sum(each.phases.get(name, 0.0) for each in parts) for name in names},
        sum(each.scored for each in parts),
        sum(each.steps for each in parts),
    )


class timed:
    """Charge a body to a phase, and give the seconds that each phase took in it.

    Args:
        stopwatch: runs in the body, and only there.
        phase: is charged with moments that no phase inside the body claims.
    """

    def __init__(self, stopwatch: Stopwatch, phase: str = "other") -> None:
        self._stopwatch = stopwatch
        self._phase = stopwatch.phase(phase)
        self._spent: dict[str, float] = {}

    def __enter__(self) -> dict[str, float]:
        """Return the seconds by phase, empty until the body ends."""
        self._before = self._stopwatch.seconds
        self._stopwatch.start()
        self._phase.__enter__()
        return self._spent

    def __exit__(self, *error: Any) -> None:
        """Stop, and fill in what each phase took."""
        self._phase.__exit__(*error)
        self._stopwatch.stop()
        for name, seconds in self._stopwatch.seconds.items():
            self._spent[name] = seconds - self._before.get(name, 0.0)
