"""Count the calls of the package's functions that a training step on a CPU takes.

Where steps are small, these calls are most of the time that selection takes. Unlike time, their
number is the same on any machine. Comprehensions do not count, since newer versions of Python call
none, and a generator counts once, not each time that it continues.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import selective_backprop as sb
from benchmarks.tiny import RATE, examples, in_step, through_loader

EXAMPLES, EPOCHS = 480, 3  # in the last epoch `stale` selects by remembered scores
HOME = str(Path(sb.__file__).parent)


@dataclass
class Counted:
    """How many calls were seen."""

    calls: int = 0


@contextmanager
def counting() -> Iterator[Counted]:
    """Count calls inside."""
    counted = Counted()
    starts: dict[Any, int] = {}  # of the package's functions; -1 for others

    def note(frame: Any, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in starts:
            made = code.co_name.startswith("<") and code.co_name != "<lambda>"
            ours = code.co_filename.startswith(HOME) and not made
            starts[code] = frame.f_lasti if ours else -1
        start = starts[code]
        goes_on = code.co_flags & inspect.CO_GENERATOR and frame.f_lasti != start
        counted.calls += start >= 0 and not goes_on

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield counted
    finally:
        sys.setprofile(before)


def per_step(steps: Iterator[None]) -> float:
    """Return the calls of each of some steps, on average."""
    with counting() as counted:
        taken = sum(1 for _ in steps)
    return counted.calls / taken


def counted(strategy: sb.Strategy, epoch: int = -1) -> float:
    return per_step(through_loader(examples(EXAMPLES), strategy, EPOCHS, epoch=epoch))


def in_steps(strategy: sb.Strategy) -> float:
    batches = list(examples(EXAMPLES))
    return per_step(in_step(strategy, [batches[0], *batches]))


ARMS: dict[str, Callable[[], float]] = {
    "traditional": lambda: counted(sb.traditional()),
    "random_backprop": lambda: counted(sb.random_backprop(RATE)),
    "selective_backprop": lambda: counted(sb.selective_backprop(RATE)),
    "stale_sb, scored": lambda: counted(sb.stale_sb(RATE), epoch=1),
    "stale_sb": lambda: counted(sb.stale_sb(RATE)),
    "recorded_sb": lambda: counted(sb.recorded_sb(RATE)),
    "infobatch": lambda: counted(sb.infobatch()),
    "auto": lambda: counted(sb.auto()),
    "SelectiveStep": lambda: in_steps(sb.selective_backprop(RATE, warmup_epochs=0)),
    "SelectiveStep, random_backprop": lambda: in_steps(sb.random_backprop(RATE)),
}
