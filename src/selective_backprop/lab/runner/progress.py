"""What is seen while arms train: a line for each, or plain lines where there is no terminal."""

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich import live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from selective_backprop.lab.records.schema import Point
from selective_backprop.lab.runner.advance import Advance, Turns, seconds_left
from selective_backprop.lab.training.run_config import Plan

QUIET = 30.0  # seconds between two plain lines of runs that are not at their end, at least

LEGEND = (
    "error: on the test set. rate: share of the examples trained on so far. cost: in epochs of "
    "traditional training. saved: against training on every example for as long. left: for this "
    "strategy alone; strategies take turns."
)


class Live:
    """Show how far each arm is; use it as a context, and call it with each evaluation.

    Args:
        console: where to.
        plans: all that will run.
        jobs: how many seeds and lengths run at a time.
        clock: returns seconds, never going backwards.
    """

    def __init__(
        self,
        console: Console,
        plans: Sequence[Plan],
        *,
        jobs: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._clock = clock
        self._arms = {
            name: Advance(name, [plan for plan in plans if plan.arm == name])
            for name in dict.fromkeys(plan.arm for plan in plans)
        }
        self._several = len({plan.length for plan in plans}) > 1
        self._began = self._heard = self._printed = clock()
        self._turns = Turns(plans, jobs, self._began)
        self._screen = live.Live(
            console=console, get_renderable=self._render, refresh_per_second=2, auto_refresh=False
        )
        if console.is_terminal:
            self._screen.auto_refresh = True

    def __call__(self, plan: Plan, point: Point | None) -> None:
        """Take in an evaluation, or None for a run that is recorded already."""
        now = self._clock()
        arm = self._arms[plan.arm]
        arm.hear(plan, point, self._turns.hear(plan, point, now))
        self._heard = now
        if self._console.is_terminal:
            self._screen.refresh()
        elif point is None or arm.whole or now - self._printed >= QUIET:
            self._printed = now
            self._console.print(self._line(arm), soft_wrap=True, highlight=False)

    def _line(self, arm: Advance) -> str:
        """Say in words how far an arm is."""
        plan, point = arm.plan, arm.point
        assert plan is not None
        what = f"{arm.name}, seed {plan.seed}"
        if self._several:
            what += f", {plan.length.words}"
        if point is None:
            return f"{what}: recorded already, not run again"
        parts = [
            f"error {point.test_error:.2f} %",
            f"rate {_percent(arm.rate)}",
            f"cost {point.cost:.2f} epochs",
            f"saved {_percent(arm.saved)}",
        ]
        if arm.whole:
            parts += [f"{point.seconds:.1f} s", f"{point.updates:,} updates"]
        else:
            parts.insert(0, f"{point.progress:.0%} done")
        left = self._left(list(self._arms.values()))
        if left:
            parts.append(f"about {_time(left)} left in all")
        return f"{what}: {', '.join(parts)}"

    def _render(self) -> RenderableType:
        """Return the table, and what its columns mean."""
        arms = list(self._arms.values())
        console = self._console
        names = max(map(len, (*self._arms, "strategy")))
        # What the numbers leave, which never break.
        room = console.width - names - (60 if self._several else 52)
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("strategy", no_wrap=True, overflow="ellipsis")
        if room >= 4:
            table.add_column("done", no_wrap=True)
        if self._several:
            table.add_column("budget", justify="right", no_wrap=True)
        for title in ("seed", "error %", "rate", "cost", "saved", "left"):
            table.add_column(title, justify="right", no_wrap=True)
        for arm in arms:
            bar = ProgressBar(total=arm.evaluations, completed=arm.done, width=min(24, room))
            cells: list[RenderableType] = [Text(arm.name), *([bar] if room >= 4 else [])]
            table.add_row(*cells, *self._cells(arm))
        shown: list[RenderableType] = [Text(self._summary(arms)), table]
        if console.height > len(arms) + 6:
            shown.append(Text(LEGEND, style="dim"))
        return Group(*shown)

    def _cells(self, arm: Advance) -> list[str]:
        plan, point = arm.plan, arm.point
        length = [] if not self._several else ["" if plan is None else plan.length.short]
        if point is None:
            said = "waiting" if arm.waits else "recorded"
            return [*length, arm.seeds, said, "", "", "", _time(self._left([arm]))]
        return [
            *length,
            arm.seeds,
            f"{point.test_error:.2f}",
            _percent(arm.rate),
            f"{point.cost:.2f}",
            _percent(arm.saved),
            _time(self._left([arm])),
        ]

    def _left(self, arms: Sequence[Advance]) -> float | None:
        """Return in how many seconds those arms are done, while so many run at a time."""
        left = seconds_left(arms)
        return None if left is None else left / self._turns.beside

    def _summary(self, arms: Sequence[Advance]) -> str:
        now = self._clock()
        done, total = (
            sum(counts)
            for counts in zip(*((arm.done, arm.evaluations) for arm in arms), strict=True)
        )
        if done >= total:
            return f"all done in {_time(now - self._began)}"
        words = f"{done / total:.0%} of all done, {_time(now - self._began)} gone"
        left = self._left(arms)
        if left is None:
            return words
        return f"{words}, about {_time(max(0.0, left - (now - self._heard)))} left"

    def __enter__(self) -> "Live":
        if self._console.is_terminal:
            self._screen.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._screen.stop()


def _percent(share: float | None) -> str:
    """Return a share in per cent; a dash where there is none."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.0f} %".replace("-0 %", "0 %").replace("-", "−")


def _time(seconds: float | None) -> str:
    """Return minutes and seconds, with hours where there are any; a dash where unknown."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
