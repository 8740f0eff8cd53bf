"""What is seen while needs are met: one bar over all, and a line for each that is under way."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from reproductions.jiang2019.needs import Need


def spell(seconds: float | None) -> str:
    """Return a duration in words: `2 h 05 min`, `14 min`, `40 s`; `unknown` for None."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


class Shown:
    """Show how far all needs are; use it as a context, and call it as needs are met.

    Args:
        console: where to.
        needs: all that will be met.
        now: returns wall seconds.
    """

    def __init__(
        self,
        console: Console,
        needs: Sequence[Need],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._now = now
        self._begun = now()
        self._sizes = {id(need): _size(need) for need in needs}
        self._total = sum(self._sizes.values())
        self._done = self._met = 0.0
        self._tasks: dict[int, TaskID] = {}
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task("all", total=self._total, news="")
        self._count = len(needs)

    def __call__(self, need: Need, words: str | None) -> None:
        """Take in a step of a need, or None where it is met."""
        if words is not None:
            share = self._sizes[id(need)] / need.steps
            self._done += share
            self._under_way(need, words)
        else:
            self._met += 1
            task = self._tasks.pop(id(need), None)
            if task is not None:
                self._bars.remove_task(task)
            self._line(f"{self._met:.0f} of {self._count}: {need.words}")
        self._bars.update(
            self._all,
            completed=self._done,
            news=f"{self._met:.0f} of {self._count}, {spell(self.left)} left",
        )

    @property
    def left(self) -> float | None:
        """Seconds until all is met at the pace so far; None before anything is known."""
        if not self._done:
            return None
        left = max(0.0, self._total - self._done)
        return (self._now() - self._begun) * left / self._done

    def _under_way(self, need: Need, words: str) -> None:
        if id(need) not in self._tasks:
            task = self._bars.add_task(need.words, total=need.steps, news="")
            self._tasks[id(need)] = task
        self._bars.update(self._tasks[id(need)], advance=1, news=words)

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(f"{text}; {spell(self.left)} left", soft_wrap=True, highlight=False)

    def __enter__(self) -> "Shown":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()


def _size(need: Need) -> float:
    return need.work if need.seconds is None else need.seconds
