"""Every moment belongs to exactly one phase."""

from typing import Any

import pytest
from fixture_loaders import Clock
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb


class Program:
    """Runs numbers (seconds to spend), "start", "stop", errors, and phases with what is in them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.watch = sb.Stopwatch(clock=self.clock)
        self.ran, self.running = 0, False

    def run(self, action: Any) -> None:
        if isinstance(action, int):
            self.clock.spend(action)
            self.ran += action * self.running
        elif isinstance(action, str):
            getattr(self.watch, action)()
            self.running = action == "start"
        elif action is KeyError:
            raise KeyError
        else:
            name, body = action
            with self.watch.phase(name):
                for part in body:
                    self.run(part)


INNER = ("score", [2, ("load", [10]), 4])


@pytest.mark.parametrize(
    ("actions", "seconds"),
    [
        (["start", 1, INNER, INNER, 8, "stop"], {"other": 9, "score": 12, "load": 20}),
        ([("load", [1]), 1, "start", 1, "stop", ("load", [1]), 1, "start", 1], {"other": 2}),
        (["start", ("load", [1, "stop", 1]), 1], {"other": 0, "load": 1}),
        ([("load", [1, "start", 2]), 4], {"other": 6}),
    ],
    ids=["the innermost phase", "only while it runs", "stopped within", "started within"],
)
def test_each_moment_belongs_to_the_innermost_phase_and_else_to_other(actions, seconds):
    program = Program()
    for action in actions:
        program.run(action)
    assert program.watch.seconds == seconds


def test_an_error_ends_its_phase():
    program = Program()
    program.run("start")
    with pytest.raises(KeyError):
        program.run(("load", [1, KeyError]))
    program.run(2)
    assert program.watch.seconds == {"other": 2, "load": 1}


def test_the_running_phase_is_seen_and_seeing_it_disturbs_nothing():
    program = Program()
    program.run("start")
    with program.watch.phase("load"):
        program.run(1)
        assert program.watch.seconds["load"] == 1
        program.run(1)
    program.watch.seconds["load"] = 0
    assert program.watch.seconds["load"] == 2


actions = st.recursive(
    st.one_of(st.integers(0, 1000), st.sampled_from(["start", "stop"])),
    lambda inner: st.tuples(st.sampled_from(["load", "score"]), st.lists(inner, max_size=4)),
    max_leaves=20,
)


@given(st.lists(actions, max_size=8))
def test_the_parts_add_up_to_the_time_it_ran(actions):
    program = Program()
    for action in actions:
        program.run(action)
    assert sum(program.watch.seconds.values()) == program.watch.total == program.ran
