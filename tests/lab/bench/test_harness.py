"""From rounds to findings: ratios within rounds, limits from what was done, and when to stop."""

import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from math import comb
from types import SimpleNamespace

import pytest
import torch
from fixture_cuda import no_waiting

import selective_backprop as sb
from selective_backprop_lab.bench import rounds as rounds_module
from selective_backprop_lab.bench.harness import (
    ScoringTrial,
    Spent,
    TimedLoops,
    conclude,
    measure,
    without_warmup,
)
from selective_backprop_lab.bench.rounds import LEAST, summarise, take_rounds
from selective_backprop_lab.bench.workload import all_scorers, bench_recipe, made_up, make_workload
from selective_backprop_lab.recipe import Precision

AGREEMENT = sb.scorers.Agreement(0.9, 0.8, 1 / 3, 1, 48)


@pytest.fixture(scope="module")
def workload():
    recipe = replace(bench_recipe("1x8x8/3"), model="tiny_cnn", batch_size=8)
    return make_workload(recipe, rate=1 / 3, device=torch.device("cpu"))


def a_round(factor: float = 1.0, **more: Spent) -> dict[str, Spent]:
    """Candidates are scored in 0.25 s each, rows are trained on in 0.75 s, loaded in 0.25 s."""

    def spent(rows: int, **phases: float) -> Spent:
        return Spent({name: factor * value for name, value in phases.items()}, rows)

    selective = {"load": 24.0, "forward": 8.0, "backward": 16.0, "other": 2.0}
    return {
        "traditional": spent(96, load=24.0, forward=24.0, backward=42.0, step=6.0),
        "selective-backprop": replace(spent(32, score=24.0, **selective), scored=96),
        "pipelined-sb": replace(spent(32, score=6.0, **selective), scored=96),
        "recorded-sb": spent(32, load=8.0, forward=8.0, backward=14.0, step=2.0, select=1.6),
        "scorer forward": spent(48, score=12.0),
        "scorer pipelined": spent(48, score=3.0),
        **more,
    }


def concluded(workload, rounds, *, agreement=AGREEMENT, **trials):
    return conclude(workload, rounds, {"pipelined": ScoringTrial(None, agreement, None), **trials})


@pytest.fixture(scope="module")
def findings(workload):
    rounds = [a_round(factor) for factor in (1.0, 5.0, 0.2)]  # a machine that drifts
    broken = ScoringTrial(None, None, "Broken: no such processor")
    return concluded(workload, rounds, bf16=broken)


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
    # 96 candidates in 4 windows, 32 rows of which are trained on.
    assert findings["strategies"]["traditional"]["limit"]["median"] == pytest.approx(1.0)
    selective = findings["strategies"]["selective-backprop"]
    mine, limit, plain = 74.0, 96 * 0.25 + 32 * 0.75 + 24, 96.0
    assert selective["limit"]["median"] == pytest.approx(limit / plain)
    assert selective["relative"]["rounds"] == findings["rounds"] == 3
    assert selective["relative"]["median"] == pytest.approx(mine / plain)
    assert selective["over_limit"]["median"] == pytest.approx(mine / limit)
    assert sum(selective["phases"].values()) == pytest.approx(mine / plain)
    recorded = findings["strategies"]["recorded-sb"]
    assert recorded["limit"]["median"] == pytest.approx((32 * 0.75 + 8) / plain)
    assert recorded["over_limit"]["median"] == pytest.approx(33.6 / 32)
    cheap = findings["strategies"]["pipelined-sb"]
    assert cheap["relative"]["median"] == pytest.approx(56 / plain)


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


@pytest.mark.parametrize(("seconds", "known", "rounds"), [(100, 0.0, 11), (1e9, math.inf, LEAST)])
def test_rounds_end_when_the_time_is_up_or_every_ratio_is_known(
    workload, monkeypatch, seconds, known, rounds
):
    moments, told = iter(range(0, 10**6, 10)), []
    monkeypatch.setattr(rounds_module, "KNOWN", known)
    monkeypatch.setattr(rounds_module, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    findings = measure(
        workload, seconds=seconds, tell=lambda count, spent: told.append((count, spent))
    )
    assert findings["rounds"] == rounds
    assert told == [(count + 1, 10 * count) for count in range(rounds)]
    assert findings["scorers"]["forward"]["overlap"] == 1.0
    assert findings["strategies"]["selective-backprop"]["phases"]["score"] > 0


@pytest.mark.parametrize("name", ["random-backprop", "recorded-sb", "selective-backprop"])
def test_an_epoch_of_a_strategy_trains_on_full_batches_and_scores_whole_windows(workload, name):
    loops = TimedLoops(workload)
    epoch = loops.selecting(without_warmup(name, workload.rate))
    for _ in range(2):
        assert list(epoch()) == [workload.recipe.batch_size] * 4
    spent = loops.timed(epoch)
    assert spent.rows == 4 * workload.recipe.batch_size
    assert {"load", "forward", "backward", "step"} <= set(spent.phases)
    assert ("score" in spent.phases) == (name == "selective-backprop")


def test_a_scorers_pass_is_run_in_its_precision_and_held_against_the_full_one(workload):
    seen, loops = [], TimedLoops(workload)
    hook = workload.model.register_forward_hook(lambda *each: seen.append(each[-1].dtype))
    trial = loops.scoring(sb.scorers.Forward(), Precision.BF16)
    assert set(seen) == {torch.bfloat16, torch.float32}
    seen.clear()
    assert trial.run().rows == 8 * workload.recipe.batch_size
    hook.remove()
    assert set(seen) == {torch.bfloat16}
    exact = loops.scoring(sb.scorers.Forward(), Precision.FP32)
    assert (exact.agreement.overlap, exact.remark) == (1.0, None)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "name", ["traditional", "random-backprop", "recorded-sb", "selective-backprop"]
)
def test_on_cuda_no_loop_makes_the_host_wait_within_an_epoch(name):
    recipe = replace(bench_recipe("1x8x8/3"), model="linear", batch_size=8)
    made = make_workload(recipe, rate=2 / 3, device=torch.device("cuda"))
    loops = TimedLoops(made)
    epoch = loops.traditional
    if name != "traditional":
        epoch = loops.selecting(without_warmup(name, made.rate))
    for watched in (nullcontext, no_waiting):  # the first epoch finds things out
        steps = epoch()
        next(steps)
        with watched():
            assert list(islice(steps, 2)) == [8, 8]
        assert sum(steps) > 0


def test_each_round_runs_each_arm_once_in_an_order_of_its_own():
    ran = []
    arms = {name: lambda name=name: ran.append(name) or name.upper() for name in "abc"}
    endless = take_rounds(arms)
    assert [next(endless) for _ in range(12)] == [{"a": "A", "b": "B", "c": "C"}] * 12
    orders = ["".join(ran[i : i + 3]) for i in range(0, len(ran), 3)]
    assert orders[0] == "abc"  # before anything counts
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(set(orders)) > 3


@pytest.mark.parametrize("count", [6, 16, 25, 64])
def test_the_interval_covers_the_median_19_times_in_20(count):
    found = summarise([float(value) for value in range(count)])
    low, high = int(found.low), int(found.high)
    assert found.median == (count - 1) / 2
    # the median lies between two order statistics as often as a binomial's half does
    inside = sum(comb(count, k) for k in range(low + 1, high + 1)) / 2**count
    assert inside >= 0.95
    assert low + high == count - 1  # as far from either end


CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SMALL = replace(bench_recipe("1x8x8/3"), model="tiny_cnn", batch_size=8)


@pytest.mark.parametrize(
    ("recipe", "rate", "window", "examples"),
    [
        (SMALL, 1 / 3, 24, 96),  # four windows of the shape that was named
        (replace(bench_recipe("digits"), model="tiny_cnn"), 1 / 2, 128, 512),
        (replace(bench_recipe("digits"), model="linear"), 1 / 20, 1280, 1280),  # all there is
    ],
)
def test_an_epoch_has_four_windows_or_as_many_as_the_data_fills(recipe, rate, window, examples):
    workload = make_workload(recipe, rate=rate, device=CPU)
    assert (workload.window, workload.examples) == (window, examples)
    assert len(workload.data.train_labels) == examples
    assert workload.at_once == workload.recipe.batch_size == recipe.batch_size


def test_data_that_does_not_fill_a_window_is_refused():
    recipe = replace(bench_recipe("digits"), batch_size=1000)
    with pytest.raises(sb.ConfigurationError, match=r"3,000 .* 1,437 .*--batch-size .*--rate"):
        make_workload(recipe, rate=1 / 3, device=CPU)


def test_all_scorers_but_one_score_in_the_precision_of_training():
    scorers = all_scorers(CPU, Precision.BF16)
    scorers.pop("quantized", None)  # where torchao is installed
    found = {name: scored_in for name, (_, scored_in) in scorers.items()}
    assert found == {"forward": Precision.BF16, "fp32": Precision.FP32}
    assert "pipelined" in all_scorers(CUDA, Precision.BF16)  # which gains time but no work


@pytest.mark.parametrize("shape", ["3x8x9", "3x8x8/0"])
def test_shapes_that_no_net_takes_are_refused(shape):
    with pytest.raises(sb.ConfigurationError, match="square images"):
        made_up(shape, 4)
