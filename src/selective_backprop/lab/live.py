"""What is seen while arms train: a bar for each, or plain lines where there is no terminal."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from selective_backprop.lab.plans import Plan
from selective_backprop.lab.records import Point


class Live:
    """Show how far each arm is; use it as a context, and call it with each evaluation.

    Args:
        console: where to.
        plans: all that will run.
    """

    def __init__(self, console: Console, plans: Sequence[Plan]) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        width = max(len(plan.arm) for plan in plans)
        for arm in dict.fromkeys(plan.arm for plan in plans):
            total = sum(plan.evaluations for plan in plans if plan.arm == arm)
            self._tasks[arm] = self._bars.add_task(arm.ljust(width), total=total, news="waiting")
        self._several = len({plan.length for plan in plans}) > 1
        self._evaluated: Counter[Plan] = Counter()

    def __call__(self, plan: Plan, point: Point | None) -> None:
        """Take in an evaluation, or None for a run that is recorded already."""
        what = f"seed {plan.seed}"
        if self._several:
            what += f", {plan.length.words}"
        task = self._tasks[plan.arm]
        if point is None:
            self._bars.update(task, advance=plan.evaluations, news=f"{what}: recorded already")
            self._line(f"{plan.arm}, {what}: recorded already, not run again")
            return
        news = f"{what}: error {point.test_error:5.2f} %, cost {point.cost:.2f}"
        self._bars.update(task, advance=1, news=news)
        self._evaluated[plan] += 1
        # Not by progress: a run of few updates may be evaluated several times at its end.
        if self._evaluated[plan] == plan.evaluations:
            self._line(f"{plan.arm}, {news}, {point.seconds:.1f} s, {point.updates:,} updates")

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, soft_wrap=True, highlight=False)

    def __enter__(self) -> "Live":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()
