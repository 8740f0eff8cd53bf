from dataclasses import replace

import pytest
from fixture_runs import fixture_run, fixture_seeds

from reproductions.claims import (
    clock,
    ends_comparably,
    ends_higher,
    learns_sooner,
    reaches_sooner,
    seconds_of_phases,
    timed,
)
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.verdict import Verdict
from selective_backprop_lab.budget import Budget

HOLDS, FAILS, OPEN = Verdict


def arm(runs):
    return RunGroup(name="any", label="any", length=Budget("epochs", 10.0), runs=tuple(runs))


def test_who_has_less_area_under_the_curve_learns_sooner():
    quick = arm(fixture_run("a", seed, (40.0 + seed, 10.0, 5.0)) for seed in range(3))
    slow = arm(fixture_run("b", seed, (50.0 + seed, 30.0, 5.0)) for seed in range(3))
    found = learns_sooner("it", quick, slow, "cost")
    assert found.verdict is HOLDS
    assert found.measured.startswith("−12.50 points of mean error over the same cost")
    assert learns_sooner("it", slow, quick, "cost").verdict is FAILS


def test_what_ends_a_little_higher_is_comparable_and_what_ends_much_higher_is_not():
    base = arm(fixture_seeds("b", (10.0, 10.1, 9.9)))
    near = arm(fixture_seeds("a", (10.4, 10.5, 10.3)))
    far = arm(fixture_seeds("a", (12.0, 12.1, 12.0)))
    apart = arm(fixture_seeds("a", (9.0, 13.0, 10.0)))
    judged = [ends_comparably("it", each, base).verdict for each in (near, far, apart)]
    assert judged == [HOLDS, FAILS, OPEN]
    assert ends_higher("it", far, base).verdict is HOLDS


def at_half(seeds, seconds):
    return arm(
        fixture_run("a", seed, (20.0, 5.0), seconds=s)
        for seed, s in zip(seeds, seconds, strict=True)
    )


def test_a_speed_up_is_a_ratio_seed_by_seed():
    fast, slow = at_half(range(3), (10.0, 11.0, 10.0)), at_half(range(3), (20.0, 22.0, 21.0))
    found = reaches_sooner("it", fast, slow, 20.0, "seconds")
    assert found.verdict is HOLDS
    assert found.measured.startswith("2.03× as fast in wall seconds to 20.00 % (1.")
    assert reaches_sooner("it", slow, fast, 20.0, "seconds").verdict is FAILS


def test_what_never_arrives_is_not_faster_and_what_seldom_does_is_not_judged():
    base = at_half(range(3), (20.0, 22.0, 21.0))
    never = arm(fixture_run("a", seed, (40.0, 30.0)) for seed in range(3))
    found = reaches_sooner("it", never, base, 20.0, "seconds")
    assert (found.verdict, found.measured) == (FAILS, "never reached 20.00 % with 3 of 3 seeds")
    once = arm([*never.runs[:2], fixture_run("a", 2, (10.0, 5.0))])
    assert reaches_sooner("it", once, base, 20.0, "seconds").verdict is OPEN
    single = arm(never.runs[:1])
    assert reaches_sooner("it", single, base, 20.0, "seconds").verdict is OPEN


@pytest.mark.parametrize(
    ("device", "axis"), [("cpu", "cpu_seconds"), ("cuda", "seconds"), ("cuda:1", "seconds")]
)
def test_runs_on_a_cpu_are_timed_in_cpu_seconds_and_others_by_the_wall(device, axis):
    run = fixture_run(device=device)
    assert clock([run]) == axis
    assert timed(("seconds", "cost", "updates"), [run]) == (axis, "cost", "updates")


def test_phases_on_a_cpu_add_up_to_its_cpu_seconds():
    run = fixture_run(device="cpu")
    point = run.points[-1]  # whose 20 wall seconds are 18 CPU seconds
    found = seconds_of_phases(run, point)
    assert found.pop("overhead") == 0.0  # which this run did not meter
    assert found == {phase: pytest.approx(0.9 * s) for phase, s in point.phases.items()}


def test_phases_on_a_gpu_are_as_they_were_metered():
    run = fixture_run(device="cuda")
    point = replace(run.points[-1], overhead=3.0)
    assert seconds_of_phases(run, point) == {**point.phases, "overhead": 3.0}
