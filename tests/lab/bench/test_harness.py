"""From rounds to findings: ratios within rounds, limits from what was done, and when to stop."""

import math
from dataclasses import replace

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab.bench import rounds as rounds_module
from selective_backprop_lab.bench.harness import (
    LEAST,
    conclude,
    measure,
    strategies_of,
    time_steps,
)
from selective_backprop_lab.bench.timed_loops import ScoringTrial, Spent, TimedLoops
from selective_backprop_lab.bench.workload import bench_recipe, make_workload
from selective_backprop_lab.recipe import Precision

AGREEMENT = sb.scorers.Agreement(0.9, 0.8, 1 / 3, 1, 48)


@pytest.fixture(scope="module")
def workload():
    recipe = replace(bench_recipe("1x8x8/3"), model="tiny_cnn", batch_size=8)
    return make_workload(recipe, rate=1 / 3, device=torch.device("cpu"))


def a_round(factor: float = 1.0, **more: Spent) -> dict[str, Spent]:
    """Candidates are scored in 0.25 s each, rows are trained on in 0.75 s, loaded in 0.25 s."""

    def spent(scored: float = 0, steps: float = 0, **phases: float) -> Spent:
        return Spent({name: factor * value for name, value in phases.items()}, scored, steps)

    return {
        "traditional": spent(steps=3, load=6.0, forward=6.0, backward=10.5, step=1.5),
        "selective-backprop": spent(
            steps=2, load=12.0, score=12.0, forward=4.0, backward=8.0, other=1.0
        ),
        "pipelined-sb": spent(steps=2, load=12.0, score=3.0, forward=4.0, backward=8.0, other=1.0),
        "random-backprop": spent(steps=3, load=6.0, forward=6.0, backward=10.5, step=1.5),
        "recorded-sb": spent(steps=3, load=6.0, forward=6.0, backward=10.5, step=1.5, select=1.2),
        "scorer forward": spent(48, score=12.0),
        "scorer pipelined": spent(48, score=3.0),
        **more,
    }


def concluded(workload, rounds, *, agreement=AGREEMENT, **trials):
    exact = sb.scorers.Forward()
    works = {"forward": exact, "pipelined": sb.experimental.Pipelined(exact, every=8)}
    strategies = strategies_of(workload.rate, works)
    starts = {"selective-backprop": 2.0, "pipelined-sb": 2.0}
    trials = {"pipelined": ScoringTrial(None, agreement, None), **trials}
    return conclude(workload, "CPU seconds of the process", rounds, strategies, starts, trials)


@pytest.fixture(scope="module")
def findings(workload):
    rounds = [a_round(factor) for factor in (1.0, 5.0, 0.2)]  # a machine that drifts
    broken = ScoringTrial(None, None, "Broken: no such processor")
    return concluded(workload, rounds, bf16=broken)


def test_a_scorer_is_held_against_exact_scoring(findings):
    cost = findings["scorers"]["pipelined"]
    assert cost["cost"]["low"] == cost["cost"]["high"] == pytest.approx(3 / 12)
    assert cost["of_full"] == cost["cost"]
    assert (cost["correlation"], cost["overlap"]) == (0.9, 0.8)


def test_a_scorer_that_cannot_work_is_remarked_on_and_left_out(findings):
    assert list(findings["scorers"]) == ["pipelined"]
    assert findings["remarks"] == {"bf16": "Broken: no such processor"}
    assert not any("bf16" in name for name in findings["strategies"])


def test_in_another_precision_a_scorer_is_held_against_both(workload):
    rounds = [a_round(**{"scorer fp32": Spent({"score": 24.0}, 48)})]
    cost = concluded(workload, rounds)["scorers"]["pipelined"]
    assert cost["cost"]["median"] == pytest.approx(3 / 12)
    assert cost["of_full"]["median"] == pytest.approx(3 / 24)


def test_a_strategy_is_held_against_traditional_and_its_limit(findings):
    # 144 candidates in 6 windows, 48 rows of which are trained on.
    assert findings["strategies"]["traditional"]["limit"]["median"] == pytest.approx(1.0)
    selective = findings["strategies"]["selective-backprop"]
    mine, limit, plain = 6 * 18.5, 144 * 0.25 + 48 * 0.75 + 36, 144.0
    assert selective["limit"]["median"] == pytest.approx(limit / plain)
    assert selective["relative"]["rounds"] == findings["rounds"] == 3
    # The start of an epoch does not drift with the rounds here.
    assert selective["relative"]["median"] == pytest.approx((mine + 2) / plain)
    assert selective["over_limit"]["median"] == pytest.approx((mine + 2) / limit)
    assert sum(selective["phases"].values()) == pytest.approx((mine + 2) / plain)
    recorded = findings["strategies"]["recorded-sb"]
    assert recorded["limit"]["median"] == pytest.approx((48 * 0.75 + 12) / plain)
    assert recorded["over_limit"]["median"] == pytest.approx(6 * 8.4 / 48)
    cheap = findings["strategies"]["pipelined-sb"]
    assert cheap["relative"]["median"] == pytest.approx((6 * (18.5 - 4.5) + 2) / plain)


def test_a_step_divides_into_its_parts_per_1000_examples(findings):
    assert findings["step"] == {
        "eval forward": pytest.approx(250_000),
        "forward": pytest.approx(250_000),
        "backward": pytest.approx(437_500),
        "step": pytest.approx(62_500),
    }
    assert findings["backward"]["median"] == pytest.approx(7 / 4)


def test_of_a_model_that_diverged_the_costs_are_kept(workload):
    nowhere = replace(AGREEMENT, correlation=math.nan, overlap=math.nan)
    kept = concluded(workload, [a_round()], agreement=nowhere)
    assert kept["scorers"]["pipelined"]["cost"]["median"] == pytest.approx(3 / 12)
    assert "diverged" in kept["remarks"]["agreement"]


@pytest.mark.parametrize(
    ("seconds", "known", "rounds"), [(0, False, LEAST), (100, False, 11), (1e9, True, LEAST)]
)
def test_rounds_end_when_the_time_is_up_or_every_ratio_is_known(
    workload, monkeypatch, seconds, known, rounds
):
    moments, told = iter(range(0, 10**6, 10)), []
    monkeypatch.setattr(rounds_module, "_are_known", lambda *_: known)
    findings = measure(
        workload,
        seconds=seconds,
        tell=lambda count, spent: told.append((count, spent)),
        now=lambda: next(moments),
    )
    assert findings["rounds"] == rounds
    assert told == [(count + 1, 10 * count) for count in range(rounds)]
    assert findings["scorers"]["forward"]["overlap"] == 1.0
    assert findings["strategies"]["selective-backprop"]["phases"]["score"] > 0


@pytest.mark.parametrize(
    ("precision", "dtype"), [(Precision.FP32, torch.float32), (Precision.BF16, torch.bfloat16)]
)
def test_steps_are_taken_in_the_precision_that_is_asked_for(workload, precision, dtype):
    asked = replace(workload.recipe, precision=precision)
    made, seen = make_workload(asked, rate=1 / 3, device=torch.device("cpu")), set()
    made.model.register_forward_hook(lambda model, inputs, logits: seen.add(logits.dtype))
    time_steps(made, 1)
    assert seen == {dtype}
    assert all(weights.dtype == torch.float32 for weights in made.model.parameters())


@pytest.mark.parametrize("name", ["random-backprop", "recorded-sb", "selective-backprop"])
def test_a_strategys_loop_trains_on_full_batches_and_scores_whole_windows(workload, name):
    strategy = strategies_of(workload.rate, {"forward": sb.scorers.Forward()})[name]
    spent = TimedLoops(workload, lambda: 0.0).selecting(strategy)(2)
    assert spent.steps == 2
    assert {"load", "forward", "backward", "step"} <= set(spent.phases)
    assert ("score" in spent.phases) == (name == "selective-backprop")


def test_a_scorers_pass_scores_the_candidates_that_it_was_tried_on(workload):
    trial = TimedLoops(workload, lambda: 0.0).scoring(sb.scorers.Forward(), Precision.FP32)
    assert (trial.agreement.overlap, trial.remark) == (1.0, None)
    assert trial.run().scored == 8 * workload.batch_size


def test_a_scorers_pass_is_run_in_its_precision_and_held_against_the_full_one(workload):
    seen = []
    hook = workload.model.register_forward_hook(lambda *each: seen.append(each[-1].dtype))
    trial = TimedLoops(workload, lambda: 0.0).scoring(sb.scorers.Forward(), Precision.BF16)
    assert set(seen) == {torch.bfloat16, torch.float32}
    seen.clear()
    trial.run()
    hook.remove()
    assert set(seen) == {torch.bfloat16}
