"""Notice epochs that are shorter than `len()` was before training, when schedules are built."""

from types import CodeType, FrameType

from selective_backprop._core.errors import PACKAGE, warn


class LengthWatch:
    """Warn once if `len()` was called before training, and an epoch is then shorter.

    A line of code that calls `len()` before training and never again may have built a schedule for
    that many steps an epoch. A progress bar calls it before every epoch, and is left alone.
    """

    def __init__(self) -> None:
        self._asked: dict[tuple[CodeType, int], int] = {}  # the length, by the line that asked
        self._begun = False
        self._done = False

    def note(self, length: int, caller: FrameType) -> None:
        """Note a length and the line that asked, unless the line is in this package."""
        if caller.f_globals.get("__name__", "").startswith(PACKAGE):
            return
        line = caller.f_code, caller.f_lineno
        if self._begun:
            self._asked.pop(line, None)
        else:
            self._asked[line] = length

    def begin(self) -> None:
        """Note that training begins; a length asked for from now on may be of a later epoch."""
        self._begun = True

    def stop(self) -> None:
        """Stop watching: the schedule counts candidates, or a warning has been given."""
        self._done = True

    def end_epoch(self, epoch: int, batches: int) -> None:
        """Warn if an epoch, numbered from 0, was shorter than `len()` before training."""
        expected = max(self._asked.values(), default=0)
        if self._done or batches >= expected - 1:  # leftovers may make up one batch more or less
            return
        self.stop()
        warn(
            f"len(loader) was {expected} before training, but epoch {epoch + 1} had {batches} "
            "batches. A learning-rate schedule that you built from that length does not reach its "
            "end. Let it count candidates: scheduler = sb.CandidateScheduler(scheduler, loader)"
        )
