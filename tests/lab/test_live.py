import io
from dataclasses import replace

import pytest
from fixture_lab import fixture_plan
from fixture_runs import fixture_point
from rich.console import Console

from selective_backprop.lab.live import Live


class Screen:
    """A console that remembers what it shows."""

    def __init__(self, terminal):
        self.file = io.StringIO()
        self.console = Console(
            file=self.file,
            force_terminal=terminal,
            width=100,
            color_system=None,
            legacy_windows=False,
        )

    @property
    def text(self):
        return self.file.getvalue()

    @property
    def lines(self):
        return self.text.splitlines()


@pytest.fixture
def pipe():
    return Screen(terminal=False)


@pytest.fixture
def terminal():
    return Screen(terminal=True)


def watch(screen, plans, points):
    with Live(screen.console, plans) as live:
        for plan, point in points:
            live(plan, point)


def two_plans(**changes):
    return [fixture_plan(arm, evaluations=2, **changes) for arm in ("traditional", "low-k")]


def test_without_a_terminal_each_run_is_one_plain_line_when_it_is_done(pipe):
    one, other = two_plans()
    half = fixture_point(0.5, 20.0)
    whole = fixture_point(1.0, 5.25, cost=3.0, seconds=12.34, updates=1234)
    watch(pipe, [one, other], [(one, half), (other, half), (one, whole), (other, whole)])
    assert pipe.lines == [
        f"{arm}, seed 0: error  5.25 %, cost 3.00, 12.3 s, 1,234 updates"
        for arm in ("traditional", "low-k")
    ]


def test_a_run_whose_steps_end_before_its_evaluations_is_one_line_too(pipe):
    (plan, _) = two_plans()
    watch(pipe, [plan], [(plan, fixture_point(1.0)), (plan, fixture_point(1.0))])
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


def test_on_a_terminal_there_is_a_bar_for_each_arm_which_fills(terminal):
    one, other = two_plans()
    point = fixture_point(0.5, 20.0, cost=1.5)
    watch(terminal, [one, other], [(one, point), (one, replace(point, test_error=7.5))])
    shown = terminal.text
    assert "traditional" in shown
    assert "low-k" in shown
    assert "error  7.50 %, cost 1.50" in shown
    last = [line for line in terminal.lines if "traditional" in line][-1]
    assert "━" * 24 in last
    idle = [line for line in terminal.lines if "low-k" in line][-1]
    assert "waiting" in idle


def test_on_a_terminal_nothing_but_the_bars_is_printed(terminal):
    (plan, _) = two_plans()
    watch(terminal, [plan], [(plan, None)])
    assert "recorded already" in terminal.text
    assert "not run again" not in terminal.text


def test_an_arm_s_bar_covers_all_its_seeds(terminal):
    plans = [fixture_plan("traditional", seed=seed, evaluations=2) for seed in (0, 1)]
    with Live(terminal.console, plans) as live:
        (task,) = live._bars.tasks
        assert task.total == 4
        live(plans[0], None)
        live(plans[1], fixture_point(0.5))
        assert task.completed == 3


def test_the_bars_go_away_when_a_run_breaks(terminal):
    (plan, _) = two_plans()
    live = Live(terminal.console, [plan])
    with pytest.raises(RuntimeError), live:
        raise RuntimeError
    assert not live._bars.live.is_started
