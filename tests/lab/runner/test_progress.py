import io
import math
import re
from dataclasses import replace

import pytest
from fixture_lab import fixture_plan
from fixture_loaders import Clock
from fixture_runs import fixture_point
from rich.console import Console

from selective_backprop_lab.runner.progress import RunProgress, spell
from selective_backprop_lab.strategies import STRATEGIES


def watch(plans, points, seconds=2.0, terminal=False, width=120, **options):
    """Show evaluations that follow each other every so many seconds; return what is shown."""
    size = {"width": width, "height": 40, "color_system": None, "legacy_windows": False}
    console, clock = Console(file=io.StringIO(), force_terminal=terminal, **size), Clock()
    with RunProgress(console, plans, clock=clock, **options) as progress:
        for plan, point in points:
            clock.now += seconds
            progress(plan, point)
    return console.file.getvalue().splitlines()


def two_plans(**changes):
    return [fixture_plan(arm, evaluations=2, **changes) for arm in ("traditional", "low-k")]


HALF = fixture_point(0.5, 20.0, cost=1.2, seconds=1.0, candidates=300, trained=100)
SPENT = {"cost": 1.8, "seconds": 2.0, "cpu_seconds": 1.5, "updates": 1234}
WHOLE = fixture_point(1.0, 5.25, candidates=600, trained=400, **SPENT)


def test_without_a_terminal_each_run_is_one_plain_line_when_it_is_done():
    one, other = two_plans()
    lines = watch([one, other], [(one, HALF), (other, HALF), (one, WHOLE), (other, WHOLE)])
    said = "error 5.25 %, rate 67 %, cost 1.80 passes, 1.5 CPU s, 1,234 updates, evaluations: 2"
    assert lines == [f"traditional, seed 0: {said}, about 2 s left", f"low-k, seed 0: {said}"]
    text = replace(one, recipe=replace(one.recipe, data="source-bytes"), limit=None)
    (line,) = watch([text], [(text, HALF), (text, replace(WHOLE, test_loss=2.0 * math.log(2)))])
    assert line.startswith("traditional, seed 0: 2.000 bits per byte, rate 67 %, cost 1.80")


def test_without_a_terminal_a_long_run_is_heard_of_on_its_way():
    plan = fixture_plan(evaluations=3)
    lines = watch([plan], [(plan, HALF), (plan, HALF), (plan, WHOLE)], seconds=45.0)
    assert len(lines) == 3
    assert "50% done, error 20.00 %, rate 33 %, cost 1.20 passes" in lines[0]
    assert lines[1].endswith("about 45 s left")


def test_a_run_that_is_recorded_already_says_so_and_nothing_of_the_pace():
    one, other = two_plans()
    lines = watch([one, other], [(one, None), (other, HALF), (other, WHOLE)])
    assert lines[0] == "traditional, seed 0: recorded already, not run again"
    assert "left" not in lines[1]


def test_what_is_left_goes_by_how_long_each_run_is_or_takes():
    one, other = (fixture_plan(evaluations=2, cost=cost) for cost in (20.0, 5.0))
    points = [(one, HALF), (one, WHOLE)]
    (line,) = watch([one, other], points, seconds=8.0)
    assert line.endswith(", about 4 s left")  # a half took 8 s, of which it is a quarter
    (line,) = watch([one, other], points, weight={one: 1.0, other: 3.0}.__getitem__)
    assert line.endswith(", about 12 s left")  # a half of 1 took 2 s, and 3 are left


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_there_are_bars_of_all_and_of_each_run_under_way(width):
    plans = [fixture_plan(name, evaluations=2) for name in ("low-k", max(STRATEGIES, key=len))]
    points = [(plans[0], HALF), (plans[0], WHOLE), (plans[1], HALF)]
    shown = watch(plans, points, terminal=True, width=width)
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).rstrip() for line in shown]
    last = [line for line in lines if line][-2:]
    assert last[0].split()[0] == "all"
    assert "1 of 2 runs, about 2 s left" in last[0]
    assert last[1].startswith(f"{max(STRATEGIES, key=len)}, ")
    assert "error 20.00 %, cost 1.20" in last[1]
    assert all("━" in line and len(line) <= width for line in last)
    assert any(line.startswith("low-k, seed 0: error 5.25 %") for line in lines)


def test_durations_are_spelt_as_people_do():
    said = {None: "unknown", 40.4: "40 s", 840: "14 min", 7500: "2 h 05 min"}
    assert {seconds: spell(seconds) for seconds in said} == said
