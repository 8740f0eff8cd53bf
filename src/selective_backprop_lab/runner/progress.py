"""Show the progress of runs: a bar for all runs and one for each running one, or plain lines."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from selective_backprop_lab.data.datasets import TEXTS, base_name
from selective_backprop_lab.records.schema import Point
from selective_backprop_lab.training.run_config import RunConfig

QUIET = 30.0  # least seconds between two plain lines on running runs


class RunProgress:
    """Show the progress of runs. Use it as a context manager, and call it with each evaluation.

    A line is printed for each run that ends. A terminal also shows bars; elsewhere, long runs print
    a line from time to time. `weight` says how long a run takes, in any unit (None: its length).
    """

    def __init__(
        self,
        console: Console,
        configs: Sequence[RunConfig],
        *,
        weight: Callable[[RunConfig], float] | None = None,
        name: Callable[[RunConfig], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        longest: dict[str, float] = {}
        for length in sorted({config.length for config in configs}):
            longest[length.unit] = length.value
        weight = weight or (
            lambda config: config.evaluations * config.length.value / longest[config.length.unit]
        )
        self._console, self._clock, self._weight = console, clock, weight
        several = len({config.length for config in configs}) > 1
        self._name = name or (
            lambda config: f"{config.arm}, seed {config.seed}" + f", {config.length}" * several
        )
        self._runs, self._ended = len(configs), 0
        self._evaluated: Counter[RunConfig] = Counter()
        self._under_way: dict[RunConfig, TaskID] = {}
        self._begun = self._printed = clock()
        one_line = Column(no_wrap=True, overflow="ellipsis")
        self._bars = Progress(
            TextColumn("{task.description}", table_column=one_line),
            BarColumn(bar_width=24 if console.width >= 100 else 8),
            TextColumn("{task.fields[news]}", table_column=Column(no_wrap=True)),
            console=console,
            disable=not console.is_terminal,
            get_time=clock,
            speed_estimate_period=math.inf,
        )
        self._all = self._bars.add_task("all", total=sum(map(weight, configs)), news="")

    def __call__(self, config: RunConfig, point: Point | None) -> None:
        """Note an evaluation, or None for a run that is recorded already."""
        name, whole = self._name(config), self._bars.tasks[0]
        share = self._weight(config) / (config.evaluations if point else 1)
        # Work that was done earlier, before this process began, says nothing about the pace.
        if point is None or point.seconds > self._clock() - self._begun:
            self._bars.update(self._all, total=(whole.total or 0.0) - share)
        else:
            self._bars.update(self._all, advance=share)
        if point is None:
            self._ended += 1
            self._print(f"{name}: recorded already, not run again")
        else:
            self._evaluated[config] += 1
            self._show(config, name, point)
        self._bars.update(self._all, news=f"{self._ended} of {self._runs} runs{self._time_left}")

    @property
    def _time_left(self) -> str:
        left = self._bars.tasks[0].time_remaining  # at the pace so far
        return f", about {spell(left)} left" if left else ""

    def _show(self, config: RunConfig, name: str, point: Point) -> None:
        rate = f"{100 * point.trained / point.candidates:.0f} %" if point.candidates else "–"
        state = f"{judged(config, point)}, rate {rate}, cost {point.cost:.2f} passes"
        if self._evaluated[config] == config.evaluations:
            self._ended += 1
            if config in self._under_way:
                self._bars.remove_task(self._under_way.pop(config))
            took = f"{seconds_of(config, point)}, {point.updates:,} updates"
            took += f", evaluations: {config.evaluations}"
            self._print(f"{name}: {state}, {took}{self._time_left}")
            return
        if config not in self._under_way:
            self._under_way[config] = self._bars.add_task(name, total=config.evaluations, news="")
        news = f"{judged(config, point)}, cost {point.cost:.2f}"
        self._bars.update(self._under_way[config], completed=self._evaluated[config], news=news)
        if not self._console.is_terminal and self._clock() - self._printed >= QUIET:
            self._print(f"{name}: {point.progress:.0%} done, {state}{self._time_left}")

    def _print(self, line: str) -> None:
        self._printed = self._clock()
        self._console.print(line, soft_wrap=True, highlight=False)

    def __enter__(self) -> "RunProgress":
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()


def seconds_of(config: RunConfig, point: Point) -> str:
    """Return a run's seconds in words; CPU time on a CPU, because its cores also do other work."""
    if config.device == "cpu":
        return f"{point.cpu_seconds:.1f} CPU s"
    return f"{point.seconds:.1f} s"


def judged(config: RunConfig, point: Point) -> str:
    """Return a run's error in words, or its bits per byte for text."""
    if base_name(config.recipe.data) in TEXTS:
        return f"{point.test_loss / math.log(2.0):.3f} bits per byte"
    return f"error {point.test_error:.2f} %"


def spell(seconds: float | None) -> str:
    """Return a duration in words: `2 h 05 min`, `14 min`, `40 s`; `unknown` for None."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
