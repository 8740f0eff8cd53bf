"""What is timed: each arm does what its name says, and charges every second to a phase."""

from dataclasses import replace

import pytest
import torch

import selective_backprop as sb
from selective_backprop.lab.contestants import (
    Spent,
    cheap_scorers,
    default_scorers,
    gather,
    mean_of,
)
from selective_backprop.lab.specimen import bench_recipe, make_specimen

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def specimen():
    recipe = replace(bench_recipe("1x8x8/3"), model="tiny_cnn", batch_size=8)
    return make_specimen(recipe, rate=1 / 3, device=CPU)


@pytest.fixture(scope="module")
def found(specimen):
    ticks = iter(range(10**9))
    return gather(specimen, ("forward", "int8", "bf16"), clock=lambda: float(next(ticks)))


def test_passes_and_steps_alone_are_those_of_an_epoch(found):
    forward = found.arms["forward alone"]()["forward alone"]
    assert (forward.scored, forward.steps) == (48, 0)
    assert set(forward.phases) <= {"score", "other"}
    steps = found.arms["step alone"]()["step alone"]
    assert (steps.scored, steps.steps) == (0, 2)
    assert {"forward", "backward", "step"} <= set(steps.phases)
    assert steps.seconds == sum(steps.phases.values())


@pytest.mark.parametrize(
    ("name", "scored", "steps"),
    [
        ("traditional", 0, 6),
        ("random-backprop", 0, 2),
        ("selective-backprop", 48, 2),
        ("recorded-sb", 0, 2),
    ],
)
def test_an_epoch_scores_and_keeps_what_its_strategy_says(found, name, scored, steps):
    for _ in range(2):
        (spent,) = found.arms[name]().values()
        assert (spent.scored, spent.steps) == (scored, steps)
        assert spent.phases["load"] > 0
        assert scored == 0 or spent.phases["score"] > 0


def test_a_stale_cycle_tells_epochs_that_score_from_those_that_remember(found):
    for _ in range(2):
        spent = found.arms["stale-sb"]()
        assert {name: (each.scored, each.steps) for name, each in spent.items()} == {
            "stale-sb": (16, 2),
            "stale-sb scored": (48, 2),
            "stale-sb recalled": (0, 2),
        }


def test_scorers_agree_with_exact_scores_and_the_exact_one_wholly(found):
    assert found.scorers[0] == "forward"
    assert found.agreements["forward"].overlap == 1.0
    assert all(found.agreements[name].overlap > 0.6 for name in found.scorers)
    spent = found.arms["scorer forward"]()["scorer forward"]
    assert spent.scored == 48
    assert spent.phases["score"] > 0


def test_a_scorer_that_cannot_be_started_is_remarked_on_and_left_out(specimen, monkeypatch):
    class Broken(Exception):
        pass

    def start(self, context):
        raise Broken("no such processor")

    monkeypatch.setattr(sb.Int8, "start", start)
    found = gather(specimen, ("forward", "int8"))
    assert found.scorers == ["forward"]
    assert found.remarks == {"int8": "Broken: no such processor"}
    assert not any("int8" in name for name in found.arms)


def test_scorers_have_names_and_those_that_do_not_pay_must_be_asked_for():
    assert "half-resolution" not in cheap_scorers(8)
    assert "compiled" in cheap_scorers(32)
    assert "compiled" not in default_scorers(32, CPU)
    assert "compiled" in default_scorers(32, torch.device("cuda"))


def test_the_mean_of_epochs_is_over_all_their_phases():
    found = mean_of([Spent({"load": 2.0}, scored=3, steps=1), Spent({"score": 4.0}, steps=1)])
    assert found == Spent({"load": 1.0, "score": 2.0}, scored=1.5, steps=1.0)
