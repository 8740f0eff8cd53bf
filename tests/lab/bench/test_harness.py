"""From rounds to findings: ratios within rounds, limits from what was done, and when to stop."""

import json
from dataclasses import asdict, replace

import pytest
import torch

import selective_backprop as sb
from selective_backprop.guide._spending import Spent
from selective_backprop.lab.bench.cases import Cases
from selective_backprop.lab.bench.harness import LEAST, Findings, conclude, run_rounds
from selective_backprop.lab.bench.workload import bench_recipe, make_workload


@pytest.fixture(scope="module")
def workload():
    recipe = replace(bench_recipe("1x8x8/3"), model="tiny_cnn", batch_size=8)
    return make_workload(recipe, rate=1 / 3, device=torch.device("cpu"))


def a_round(factor: float = 1.0) -> dict[str, Spent]:
    """48 candidates: 12 s of forward passes, 16 rows in two steps of 6 s."""

    def spent(scored: float = 0, steps: float = 0, **phases: float) -> Spent:
        return Spent({name: factor * value for name, value in phases.items()}, scored, steps)

    return {
        "forward alone": spent(48, score=12.0),
        "step alone": spent(steps=2, forward=4.0, backward=7.0, step=1.0),
        "scorer int8": spent(48, score=3.0),
        "traditional": spent(steps=6, load=4.0, forward=12.0, backward=21.0, step=3.0),
        "selective-backprop": spent(
            48, 2, load=4.0, score=12.0, forward=4.0, backward=7.0, step=1.0, other=1.4
        ),
        "stale-sb": spent(16, 2, load=2.0, score=4.0, backward=12.0),
    }


@pytest.fixture
def findings(workload):
    found = Cases(
        agreements={"int8": sb.scorers.Agreement(0.9, 0.8, 1 / 3, 1, 48)},
        remarks={"compiled": "no compiler"},
    )
    rounds = [a_round(factor) for factor in (1.0, 5.0, 0.2)]  # a machine that drifts
    return conclude(workload, found, rounds)


def test_a_scorer_costs_so_many_forward_passes(findings):
    found = findings.scorers["int8"]
    assert found.cost.low == found.cost.high == pytest.approx(3 / 12)
    assert found.of_full == found.cost
    assert (found.correlation, found.overlap) == (0.9, 0.8)


def test_in_another_precision_a_scorer_is_held_against_both_forwards(workload):
    found = Cases(agreements={"int8": sb.scorers.Agreement(0.9, 0.8, 1 / 3, 1, 48)})
    full = {"fp32 forward alone": Spent({"score": 24.0}, 48)}
    findings = conclude(workload, found, [a_round() | full])
    cost = findings.scorers["int8"]
    assert cost.cost.median == pytest.approx(3 / 12)
    assert cost.of_full.median == pytest.approx(3 / 24)
    assert set(findings.strategies) == {"traditional", "selective-backprop", "stale-sb"}


def test_a_strategy_is_held_against_traditional_and_its_limit(findings):
    found = findings.strategies["selective-backprop"]
    assert found.relative.median == pytest.approx(29.4 / 40)
    assert found.limit.median == pytest.approx((12 + 12 + 4) / 40)
    assert found.over_limit.median == pytest.approx(29.4 / 28)
    assert sum(found.phases.values()) == pytest.approx(29.4 / 40)
    stale = findings.strategies["stale-sb"]
    assert stale.limit.median == pytest.approx((12 / 3 + 12 + 2) / 40)
    assert stale.over_limit.median == pytest.approx(1.0)
    assert findings.strategies["traditional"].limit.median == pytest.approx(1.0)
    assert "scorer int8" not in findings.strategies


def test_a_step_divides_into_its_parts_per_1000_examples(findings):
    assert findings.step == {
        "eval forward": pytest.approx(12_000 / 48 * 1000),
        "forward": pytest.approx(4_000 / 16 * 1000),
        "backward": pytest.approx(7_000 / 16 * 1000),
        "step": pytest.approx(1_000 / 16 * 1000),
    }
    assert findings.backward.median == pytest.approx(7 / 4)


def test_findings_are_read_from_the_record_that_was_written_of_them(findings):
    record = json.loads(json.dumps(asdict(findings) | {"command": "selective-backprop bench"}))
    assert Findings.read(record) == findings
    assert record["config"]["model"] == "tiny_cnn"
    assert record["config"]["examples"] == 48
    assert record["config"]["precision"] == "fp32"
    assert record["config"]["scored_at_once"] == 8


class Machine:
    """Arms whose costs are told beforehand, and seconds that pass as they run."""

    def __init__(self, costs):
        self.now = 0.0
        self.costs = iter(costs)

    def arms(self):
        def traditional():
            return {"traditional": Spent({"step": 1.0}, steps=1)}

        def selective():
            self.now += 10.0
            return {"selective-backprop": Spent({"step": next(self.costs)}, steps=1)}

        return {"traditional": traditional, "selective-backprop": selective}

    def run(self, seconds):
        told = []
        rounds = run_rounds(
            self.arms(), seconds=seconds, tell=lambda r: told.append(len(r)), now=lambda: self.now
        )
        assert told == list(range(1, len(rounds) + 1))
        return len(rounds)


def test_rounds_end_when_the_time_is_up():
    noise = [1.0 + number % 7 for number in range(1000)]
    assert Machine(noise).run(seconds=0) == LEAST
    assert Machine(noise).run(seconds=200) == 19  # and one before anything counts


def test_the_range_of_the_fewest_rounds_is_a_95_percent_interval_of_the_median():
    all_on_one_side = 2 * 0.5**LEAST
    assert 1 - all_on_one_side >= 0.95


def test_rounds_end_when_every_ratio_is_known():
    assert Machine([9.0] * 3 + [1.0] * 1000).run(seconds=1e9) < 20
