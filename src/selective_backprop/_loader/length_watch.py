"""Notice epochs that are shorter than `len()` was before training, as schedules take it."""

from types import CodeType, FrameType

from selective_backprop._core.errors import PACKAGE, warn


class LengthWatch:
    """Warn once if `len()` was asked before training, and an epoch then fell short of it.

    A progress bar asks before every epoch. A line of code that asked before training and never
    again may have made a schedule for that many steps an epoch.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[CodeType, int], int] = {}  # the length, by the line that asked
        self._begun = False
        self._done = False

    def note(self, length: int, caller: FrameType) -> None:
        """Note a length and the line that asked; this package itself knows what to do with it."""
        if caller.f_globals.get("__name__", "").startswith(PACKAGE):
            return
        line = caller.f_code, caller.f_lineno
        if self._begun:
            self._asked.pop(line, None)
        else:
            self._asked[line] = length

    def begin(self) -> None:
        """Take note that training begins: lengths asked for from now on may be of later epochs."""
        self._begun = True

    def stop(self) -> None:
        """Watch no longer: the schedule goes by candidates, or a warning has been given."""
        self._done = True

    def end_epoch(self, epoch: int, batches: int) -> None:
        """Warn if an epoch, numbered from 0, was shorter than `len()` before training."""
        expected = max(self._asked.values(), default=0)
        if self._done or batches >= expected - 1:  # leftovers may make up one batch more or less
            return
        self.stop()
        warn(
            f"len(loader) was {expected} before training, but epoch {epoch + 1} had {batches} "
            "batches. If you built a learning-rate schedule from that length, it stops early. Let "
            "it count candidates: scheduler = sb.CandidateScheduler(scheduler, loader)"
        )
