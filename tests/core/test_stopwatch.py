"""Every moment belongs to exactly one phase."""

import pytest
from fixture_clock import Clock
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_each_moment_belongs_to_the_innermost_phase_and_else_to_other(clock):
    watch = sb.Stopwatch(clock=clock)
    watch.start()
    clock.spend(1.0)
    for seconds in (10.0, 20.0):
        with watch.phase("score"):
            clock.spend(2.0)
            with watch.phase("load"):
                clock.spend(seconds)
            clock.spend(4.0)
    clock.spend(8.0)
    watch.stop()
    assert watch.seconds == {"other": 9.0, "score": 12.0, "load": 30.0}


def test_before_start_and_after_stop_nothing_is_charged(clock):
    watch = sb.Stopwatch(clock=clock)
    with watch.phase("load"):
        clock.spend(1.0)
    clock.spend(1.0)
    watch.start()
    clock.spend(1.0)
    watch.stop()
    with watch.phase("load"):
        clock.spend(1.0)
    clock.spend(1.0)
    assert watch.seconds == {"other": 1.0}
    watch.start()
    clock.spend(1.0)
    assert watch.seconds == {"other": 2.0}


def test_stopped_within_a_phase_it_stays_stopped(clock):
    watch = sb.Stopwatch(clock=clock)
    watch.start()
    with watch.phase("load"):
        clock.spend(1.0)
        watch.stop()
        clock.spend(1.0)
    clock.spend(1.0)
    assert watch.seconds == {"other": 0.0, "load": 1.0}


def test_started_within_a_phase_it_goes_on_after_it(clock):
    watch = sb.Stopwatch(clock=clock)
    with watch.phase("load"):
        clock.spend(1.0)
        watch.start()
        clock.spend(2.0)
    clock.spend(4.0)
    assert watch.seconds == {"other": 6.0}


def test_an_error_ends_its_phase(clock):
    watch = sb.Stopwatch(clock=clock)
    watch.start()
    with pytest.raises(KeyError), watch.phase("load"):  # noqa: PT012
        clock.spend(1.0)
        raise KeyError
    clock.spend(2.0)
    assert watch.seconds == {"other": 2.0, "load": 1.0}


def test_the_running_phase_is_seen_and_seeing_it_disturbs_nothing(clock):
    watch = sb.Stopwatch(clock=clock)
    watch.start()
    with watch.phase("load"):
        clock.spend(1.0)
        assert watch.seconds["load"] == 1.0
        clock.spend(1.0)
    watch.seconds["load"] = 0.0
    assert watch.seconds["load"] == 2.0


actions = st.recursive(
    st.one_of(
        st.integers(0, 1000),
        st.sampled_from(["start", "stop"]),
    ),
    lambda inner: st.tuples(st.sampled_from(["load", "score"]), st.lists(inner, max_size=4)),
    max_leaves=20,
)


@given(st.lists(actions, max_size=8))
def test_the_parts_add_up_to_the_time_it_ran(program):
    clock = Clock()
    watch = sb.Stopwatch(clock=clock)
    ran, running = 0, False

    def run(action: object) -> None:
        nonlocal ran, running
        if isinstance(action, int):
            clock.spend(action)
            ran += action * running
        elif isinstance(action, str):
            getattr(watch, action)()
            running = action == "start"
        else:
            name, body = action
            with watch.phase(name):
                for part in body:
                    run(part)

    for action in program:
        run(action)
    assert sum(watch.seconds.values()) == watch.total == ran
