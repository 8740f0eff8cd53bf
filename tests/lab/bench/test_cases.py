"""What is timed: each arm does what its name says, and charges every second to a phase."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

import selective_backprop as sb
from selective_backprop.guide._spending import Spent, mean_of
from selective_backprop.lab.bench.cases import (
    FULL_FORWARD,
    cheap_scorers,
    gather,
    strategies,
)
from selective_backprop.lab.bench.workload import bench_recipe, make_workload
from selective_backprop.lab.recipe import Precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FP32, BF16 = Precision.FP32, Precision.BF16


@pytest.fixture(scope="module")
def workload():
    recipe = replace(bench_recipe("1x8x8/3"), model="tiny_cnn", batch_size=8)
    return make_workload(recipe, rate=1 / 3, device=CPU)


@pytest.fixture(scope="module")
def found(workload):
    ticks = iter(range(10**9))
    return gather(workload, ("forward", "int8", "bf16"), clock=lambda: float(next(ticks)))


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


def test_a_strategy_in_which_the_model_diverges_is_named(workload):
    recipe = replace(workload.recipe, learning_rate=1e6)

    def diverge():
        for arm in gather(replace(workload, recipe=recipe), ()).arms.values():
            for _ in range(3):
                arm()

    with pytest.raises(sb.LossError, match=r"^[a-z-]+: .*not finite.* rate of the recipe"):
        diverge()


def test_a_stale_cycle_tells_epochs_that_score_from_those_that_remember(found):
    for _ in range(2):
        spent = found.arms["stale-sb"]()
        assert {name: (each.scored, each.steps) for name, each in spent.items()} == {
            "stale-sb": (16, 2),
            "stale-sb scored": (48, 2),
            "stale-sb recalled": (0, 2),
        }


def test_scorers_agree_with_exact_scores_and_the_exact_one_wholly(found):
    assert next(iter(found.agreements)) == "forward"
    assert found.agreements["forward"].overlap == 1.0
    assert all(each.overlap > 0.6 for each in found.agreements.values())
    spent = found.arms["scorer forward"]()["scorer forward"]
    assert spent.scored == 48
    assert spent.phases["score"] > 0


def test_a_scorer_that_cannot_be_started_is_remarked_on_and_left_out(workload, monkeypatch):
    class Broken(Exception):
        pass

    def start(self, context):
        raise Broken("no such processor")

    monkeypatch.setattr(sb.scorers.Int8, "start", start)
    found = gather(workload, ("forward", "int8"))
    assert list(found.agreements) == ["forward"]
    assert found.remarks == {"int8": "Broken: no such processor"}
    assert not any("int8" in name for name in found.arms)


@pytest.fixture(scope="module")
def in_bf16(workload):
    return replace(workload, recipe=replace(workload.recipe, precision=Precision.BF16))


def test_in_bf16_everything_but_the_fp32_forward_is_computed_in_it(in_bf16):
    ticks = iter(range(10**9))
    found = gather(in_bf16, ("forward", "fp32"), clock=lambda: float(next(ticks)))
    seen = {}
    with noted_logits(seen):
        for name in (FULL_FORWARD, "forward alone", "step alone", "traditional"):
            seen["now"] = name
            found.arms[name]()
        for name in ("scorer forward", "scorer fp32", "selective-backprop"):
            seen["now"] = name
            found.arms[name]()
    full = {FULL_FORWARD, "scorer fp32"}
    del seen["now"]
    assert {name for name, dtypes in seen.items() if dtypes == {torch.float32}} == full
    assert all(dtypes == {torch.bfloat16} for name, dtypes in seen.items() if name not in full)
    assert len(seen) == 7
    assert found.agreements["fp32"].overlap == 1.0


def test_a_full_forward_is_timed_beside_the_trainings_own_only_where_they_differ(found, in_bf16):
    assert FULL_FORWARD not in found.arms
    assert FULL_FORWARD in gather(in_bf16, ()).arms


@contextmanager
def noted_logits(seen):
    def note(module, inputs, outputs):
        if isinstance(module, torch.nn.Linear):
            seen.setdefault(seen["now"], set()).add(outputs.dtype)

    handle = torch.nn.modules.module.register_module_forward_hook(note)
    yield
    handle.remove()


def test_wholes_are_timed_beside_phases_where_looking_would_cost(workload):
    ticks = iter(range(10**9))
    clock = lambda: float(next(ticks))  # noqa: E731
    found = gather(workload, (), clock, unwatched=True)
    for name in ("step alone", "selective-backprop", "stale-sb"):
        for kind, spent in found.arms[name]().items():
            assert spent.seconds == 1.0, kind  # one tick from start to stop, whatever the phases
            assert sum(spent.phases.values()) > 4
    spent = found.arms["stale-sb"]()
    assert spent["stale-sb recalled"].scored == 0
    assert spent["stale-sb scored"].scored == 48


def test_the_mean_of_wholes_is_the_whole_of_the_mean():
    found = mean_of([Spent({"load": 2.0}, whole=1.0), Spent({"load": 2.0}, whole=2.0)])
    assert (found.whole, found.seconds) == (1.5, 1.5)


def test_the_mean_of_epochs_is_over_all_their_phases():
    found = mean_of([Spent({"load": 2.0}, scored=3, steps=1), Spent({"score": 4.0}, steps=1)])
    assert found == Spent({"load": 1.0, "score": 2.0}, scored=1.5, steps=1.0)


def test_small_images_are_not_made_smaller():
    assert "half-resolution" not in cheap_scorers(8, CPU)
    assert "half-resolution" in cheap_scorers(16, CPU)


def test_what_gains_time_but_no_work_is_timed_on_a_gpu_alone():
    assert "pipelined" not in cheap_scorers(32, CPU)
    assert isinstance(cheap_scorers(32, CUDA)["pipelined"], sb.scorers.Pipelined)


def test_in_bf16_scorers_score_in_it_and_nothing_has_two_names():
    found = cheap_scorers(32, CUDA, BF16)
    assert found["forward"] == cheap_scorers(32, CUDA)["bf16"]
    assert found["fp32"] == sb.scorers.Forward()
    assert found["half-resolution"].scorer == found["pipelined"].scorer == found["forward"]
    assert "bf16" not in found
    for precision in Precision:
        kinds = list(map(repr, cheap_scorers(32, CUDA, precision).values()))
        assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("precision", Precision)
def test_strategies_score_with_the_cheapest_scorers_that_can_be_timed(precision):
    names = set(strategies(1 / 3, precision, ()))
    assert names == {
        "traditional",
        "random-backprop",
        "selective-backprop",
        "stale-sb",
        "recorded-sb",
    }
    found = strategies(1 / 3, precision, ("int8", "pipelined"))
    assert set(found) - names == {"int8-sb", "int8-stale-sb", "pipelined-sb"}
    known = cheap_scorers(32, CUDA, precision)
    assert found["selective-backprop"].scorer == known["forward"]
    for name in ("int8", "pipelined"):
        assert found[f"{name}-sb"].scorer == known[name]
