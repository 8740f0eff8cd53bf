import pytest
from fixture_runs import fixture_run

from reproductions.jiang2019.clock import clock, seconds_of_phases, timed


@pytest.mark.parametrize(
    ("device", "axis"), [("cpu", "cpu_seconds"), ("cuda", "seconds"), ("cuda:1", "seconds")]
)
def test_runs_on_a_cpu_are_timed_in_cpu_seconds_and_others_by_the_wall(device, axis):
    run = fixture_run(config={"device": device})
    assert clock([run]) == axis
    assert timed(("seconds", "cost", "updates"), [run]) == (axis, "cost", "updates")


def test_phases_on_a_cpu_add_up_to_its_cpu_seconds():
    run = fixture_run(config={"device": "cpu"})
    point = run.points[-1]  # whose 20 wall seconds are 18 CPU seconds
    found = seconds_of_phases(run, point)
    assert found == {phase: pytest.approx(0.9 * s) for phase, s in point.phases.items()}


def test_phases_on_a_gpu_are_as_they_were_metered():
    run = fixture_run(config={"device": "cuda"})
    assert seconds_of_phases(run, run.points[-1]) == run.points[-1].phases
