"""The gates' ratios: taken within rounds, until they are known."""

import importlib.util
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "gate.py"


@pytest.fixture
def gate(monkeypatch):
    spec = importlib.util.spec_from_file_location("gate", SOURCE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gate", module)
    spec.loader.exec_module(module)
    return module


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


def test_a_ratio_is_taken_within_each_round(gate):
    clock = Clock()
    drift = [1.0]

    def slow() -> None:
        drift[0] *= 1.1  # a machine that gets slower has the same ratio all the time
        clock.spend(3 * drift[0])

    arms = {"slow": slow, "fast": lambda: clock.spend(drift[0])}
    told = []
    found = gate.measure(
        arms, lambda spent: spent["slow"] / spent["fast"], tell=told.append, clock=clock, seconds=0
    )
    assert 3 / 1.1 <= found.low <= found.median <= found.high <= 3.3 * 1.001
    assert found.rounds == gate.FEWEST
    assert told == [found]
    assert found.seconds["slow"] > found.seconds["fast"]


def test_rounds_go_on_until_the_ratio_is_known(gate):
    clock, disturbed = Clock(), iter([2.0] * 12)
    arms = {"noisy": lambda: clock.spend(next(disturbed, 1.0)), "even": lambda: clock.spend(1.0)}
    found = gate.measure(arms, lambda spent: spent["noisy"] / spent["even"], tell=id, clock=clock)
    assert found.within(gate.KNOWN)
    assert found.rounds > gate.FEWEST
