import io
import re

import pytest
from fixture_lab import fixture_plan
from fixture_runs import fixture_point
from rich.console import Console

from selective_backprop.lab.runner.progress import Live
from selective_backprop.lab.strategies import ARMS


class Screen:
    """A console that remembers what it shows."""

    def __init__(self, terminal, width=100):
        self.file = io.StringIO()
        self.console = Console(
            file=self.file,
            force_terminal=terminal,
            width=width,
            height=40,
            color_system=None,
            legacy_windows=False,
        )

    @property
    def text(self):
        return self.file.getvalue()

    @property
    def lines(self):
        return self.text.splitlines()

    @property
    def table(self):
        """What was on the screen last, as a list of lines."""
        last = self.text.rpartition("\x1b[2K")[2]
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", last)
        return [line.rstrip() for line in plain.splitlines() if line.strip()]


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def pipe():
    return Screen(terminal=False)


@pytest.fixture
def terminal():
    return Screen(terminal=True)


def watch(screen, plans, points, seconds=2.0):
    """Show evaluations that follow each other every so many seconds."""
    clock = Clock()
    with Live(screen.console, plans, clock=clock) as live:
        for plan, point in points:
            clock.now += seconds
            live(plan, point)


def two_plans(**changes):
    return [fixture_plan(arm, evaluations=2, **changes) for arm in ("traditional", "low-k")]


HALF = fixture_point(0.5, 20.0, cost=1.2, seconds=1.0, candidates=300, trained=100)
WHOLE = fixture_point(
    1.0, 5.25, cost=1.8, seconds=2.0, updates=1234, candidates=600, trained=400, epoch=3.0
)


def test_without_a_terminal_each_run_is_one_plain_line_when_it_is_done(pipe):
    one, other = two_plans()
    watch(pipe, [one, other], [(one, HALF), (other, HALF), (one, WHOLE), (other, WHOLE)])
    said = "error 5.25 %, rate 67 %, cost 1.80 epochs, saved 40 %, 2.0 s, 1,234 updates"
    assert pipe.lines == [
        f"traditional, seed 0: {said}, about 0:02 left in all",
        f"low-k, seed 0: {said}",
    ]


def test_without_a_terminal_a_long_run_is_heard_of_on_its_way(pipe):
    (plan, _) = two_plans()
    watch(pipe, [plan], [(plan, HALF), (plan, WHOLE)], seconds=45.0)
    assert pipe.lines[0] == (
        "traditional, seed 0: 50% done, error 20.00 %, rate 33 %, cost 1.20 epochs, saved 20 %, "
        "about 0:45 left in all"
    )
    assert len(pipe.lines) == 2


def test_a_run_whose_steps_end_before_its_evaluations_is_one_line_too(pipe):
    (plan, _) = two_plans()
    watch(pipe, [plan], [(plan, WHOLE), (plan, WHOLE)])
    assert len(pipe.lines) == 1


def test_a_run_that_is_recorded_already_says_so(pipe):
    one, other = two_plans()
    watch(pipe, [one, other], [(one, None)])
    assert pipe.lines == ["traditional, seed 0: recorded already, not run again"]


def test_where_there_are_several_lengths_each_line_says_which(pipe):
    plans = [fixture_plan("traditional", cost=cost, evaluations=1) for cost in (1.0, 2.5)]
    watch(pipe, plans, [(plan, fixture_point()) for plan in plans])
    assert ["a budget of 1 traditional epochs" in pipe.lines[0], "2.5" in pipe.lines[1]] == [
        True
    ] * 2


def test_a_line_is_not_broken_however_narrow_the_console(pipe):
    pipe.console.width = 20
    (plan, _) = two_plans()
    watch(pipe, [plan], [(plan, None)])
    assert len(pipe.lines) == 1


def test_on_a_terminal_there_is_a_line_for_each_arm(terminal):
    one, other = two_plans()
    watch(terminal, [one, other], [(one, HALF)])
    summary, heading, first, second, *legend = terminal.table
    assert summary.strip() == "25% of all done, 0:02 gone, about 0:06 left"
    assert heading.split() == [
        "strategy",
        "done",
        "seed",
        "error",
        "%",
        "rate",
        "cost",
        "saved",
        "left",
    ]
    assert first.split()[2:] == ["1", "of", "1", "20.00", "33", "%", "1.20", "20", "%", "0:02"]
    assert second.split()[-2:] == ["waiting", "–"]
    assert "epochs of traditional training" in " ".join(legend)


def test_when_all_is_done_the_table_says_in_what_time(terminal):
    (plan, _) = two_plans()
    watch(terminal, [plan], [(plan, HALF), (plan, WHOLE)])
    assert terminal.table[0].strip() == "all done in 0:04"
    assert "━" * 24 in terminal.table[2]
    assert terminal.table[2].split()[-1] == "0:00"


@pytest.mark.parametrize("budgets", [(), (1.0, 2.5)])
def test_the_longest_name_fits_into_eighty_columns(budgets):
    screen = Screen(terminal=True, width=80)
    longest = max(ARMS, key=len)
    plans = [fixture_plan(longest, cost=cost, evaluations=2) for cost in budgets]
    plans = plans or [fixture_plan(longest, evaluations=2)]
    watch(screen, plans, [(plans[0], HALF)])
    assert longest in screen.table[2]
    assert ("budget" in screen.table[1]) == bool(budgets)
    assert re.search(r"  \d:\d\d$", screen.table[2])
    assert all(len(line) <= 80 for line in screen.table)


def test_what_the_columns_mean_gives_way_where_there_are_more_arms_than_lines(terminal):
    terminal.console.height = 7
    one, other = two_plans()
    watch(terminal, [one, other], [(one, HALF)])
    assert len(terminal.table) == 4


def test_a_run_that_is_recorded_already_is_told_from_one_that_waits(terminal):
    one, other = two_plans()
    watch(terminal, [one, other], [(one, None)])
    assert "recorded" in terminal.table[2]
    assert "waiting" in terminal.table[3]
    assert "not run again" not in terminal.text


def test_what_runs_beside_each_other_is_done_sooner(pipe):
    plans = [fixture_plan("low-k", seed=seed, evaluations=2) for seed in range(4)]
    clock = Clock()
    with Live(pipe.console, plans, jobs=2, clock=clock) as live:
        for plan, point in [
            (plans[0], HALF),
            (plans[1], HALF),
            (plans[0], WHOLE),
            (plans[1], WHOLE),
            (plans[2], HALF),
            (plans[3], HALF),
            (plans[2], WHOLE),
            (plans[3], WHOLE),
        ]:
            clock.now += 2.0  # each is heard of every 4 s, the very first time apart
            live(plan, point)
    *left, end = [line.rpartition(", about ")[2] for line in pipe.lines]
    # Five evaluations two at a time, four, and one alone.
    assert left == ["0:10 left in all", "0:08 left in all", "0:04 left in all"]
    assert "left" not in end


def test_the_table_goes_away_when_a_run_breaks(terminal):
    (plan, _) = two_plans()
    live = Live(terminal.console, [plan])
    with pytest.raises(RuntimeError), live:
        raise RuntimeError
    assert not live._screen.is_started
