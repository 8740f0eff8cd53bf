"""From rounds to findings: ratios within rounds, limits from what was done, and when to stop."""

import json
import math
from dataclasses import asdict, replace

import pytest
import torch

import selective_backprop as sb
from selective_backprop.guide._budget import Budget
from selective_backprop.guide._forecast import Ingredients
from selective_backprop.guide._inquiry import Found, Inquiry
from selective_backprop.guide._scorers import CheapScorer
from selective_backprop.guide._scoring import Trial
from selective_backprop.guide._spending import Spent
from selective_backprop.guide._subject import take_subject
from selective_backprop.lab.bench import harness
from selective_backprop.lab.bench.harness import LEAST, Findings, conclude, measure, time_steps
from selective_backprop.lab.bench.workload import bench_recipe, made_up, make_workload
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.nets.models import make_model

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
        "scored": spent(steps=2, load=12.0, score=12.0, forward=4.0, backward=8.0, other=1.0),
        "random": spent(steps=3, load=6.0, forward=6.0, backward=10.5, step=1.5),
        "recalled": spent(steps=3, load=6.0, forward=6.0, backward=10.5, step=1.5, select=1.2),
        "scorer forward": spent(48, score=12.0),
        "scorer int8": spent(48, score=3.0),
        **more,
    }


def found(workload, rounds, *, agreement=AGREEMENT, **trials) -> Found:
    subject = workload.subject
    starts = {"scored": 2.0}
    return Found(
        Ingredients(subject.batch_size, subject.window, subject.examples, starts),
        rounds,
        {name: workload.scorers[name] for name in ("forward", "int8")},
        {"int8": Trial(None, agreement, None), **trials},
        None,
        False,
        "CPU seconds of the process",
    )


@pytest.fixture(scope="module")
def findings(workload):
    rounds = [a_round(factor) for factor in (1.0, 5.0, 0.2)]  # a machine that drifts
    broken = Trial(None, None, "Broken: no such processor")
    return conclude(workload, found(workload, rounds, bf16=broken), ["int8", "bf16"])


def test_a_scorer_is_held_against_exact_scoring(findings):
    cost = findings.scorers["int8"]
    assert cost.cost.low == cost.cost.high == pytest.approx(3 / 12)
    assert cost.of_full == cost.cost
    assert (cost.correlation, cost.overlap) == (0.9, 0.8)


def test_a_scorer_that_cannot_work_is_remarked_on_and_left_out(findings):
    assert list(findings.scorers) == ["int8"]
    assert findings.remarks == {"bf16": "Broken: no such processor"}
    assert not any("bf16" in name for name in findings.strategies)


def test_in_another_precision_a_scorer_is_held_against_both(workload):
    rounds = [a_round(**{"scorer fp32": Spent({"score": 24.0}, 48)})]
    cost = conclude(workload, found(workload, rounds), ["int8"]).scorers["int8"]
    assert cost.cost.median == pytest.approx(3 / 12)
    assert cost.of_full.median == pytest.approx(3 / 24)


def test_a_strategy_is_held_against_traditional_and_its_limit(findings):
    # 144 candidates in 6 windows, 48 rows of which are trained on.
    assert findings.strategies["traditional"].limit.median == pytest.approx(1.0)
    selective = findings.strategies["selective-backprop"]
    mine, limit, plain = 6 * 18.5, 144 * 0.25 + 48 * 0.75 + 36, 144.0
    assert selective.limit.median == pytest.approx(limit / plain)
    rounds = selective.relative.rounds
    assert (rounds, findings.rounds) == (3, 3)
    # The start of an epoch does not drift with the rounds here.
    assert selective.relative.median == pytest.approx((mine + 2) / plain)
    assert selective.over_limit.median == pytest.approx((mine + 2) / limit)
    assert sum(selective.phases.values()) == pytest.approx((mine + 2) / plain)
    assert "start" not in selective.phases
    recorded = findings.strategies["recorded-sb"]
    assert recorded.limit.median == pytest.approx((48 * 0.75 + 12) / plain)
    assert recorded.over_limit.median == pytest.approx(6 * 8.4 / 48)
    cheap = findings.strategies["int8-sb"]
    assert cheap.relative.median == pytest.approx((6 * (18.5 - 4.5) + 2) / plain)


def test_a_step_divides_into_its_parts_per_1000_examples(findings):
    assert findings.step == {
        "eval forward": pytest.approx(250_000),
        "forward": pytest.approx(250_000),
        "backward": pytest.approx(437_500),
        "step": pytest.approx(62_500),
    }
    assert findings.backward.median == pytest.approx(7 / 4)


def test_of_a_model_that_diverged_the_costs_are_kept(workload):
    nowhere = replace(AGREEMENT, correlation=math.nan, overlap=math.nan)
    kept = conclude(workload, found(workload, [a_round()], agreement=nowhere), ["int8"])
    assert kept.scorers["int8"].cost.median == pytest.approx(3 / 12)
    assert "diverged" in kept.remarks["agreement"]


def test_findings_are_read_from_the_record_that_was_written_of_them(findings):
    record = json.loads(json.dumps(asdict(findings) | {"command": "selective-backprop bench"}))
    assert Findings.read(record) == findings
    assert record["config"]["model"] == "tiny_cnn"
    assert record["config"]["examples"] == 144
    assert record["config"]["precision"] == "fp32"
    assert record["config"]["scored_at_once"] == 8


@pytest.mark.parametrize(
    ("seconds", "known", "rounds"), [(0, False, LEAST), (100, False, 11), (1e9, True, LEAST)]
)
def test_rounds_end_when_the_time_is_up_or_every_ratio_is_known(
    workload, monkeypatch, seconds, known, rounds
):
    moments, told = iter(range(0, 10**6, 10)), []
    monkeypatch.setattr(harness, "are_known", lambda *_, **__: known)
    findings = measure(
        workload,
        ["forward"],
        seconds=seconds,
        tell=lambda count, spent: told.append((count, spent)),
        now=lambda: next(moments),
    )
    assert findings.rounds == rounds
    assert told == [(count + 1, 10 * count) for count in range(rounds)]
    assert findings.scorers["forward"].overlap == 1.0
    assert findings.strategies["selective-backprop"].phases["score"] > 0


def test_the_range_of_the_fewest_rounds_is_a_95_percent_interval_of_the_median():
    all_on_one_side = 2 * 0.5**LEAST
    assert 1 - all_on_one_side >= 0.95


def test_steps_alone_are_timed_by_phase(workload):
    steps = time_steps(workload, 2)
    assert len(steps) == 2
    assert {"load", "forward", "backward", "step"} <= set(steps[0].phases)


def test_what_scores_beside_the_training_has_a_loop_of_its_own_over_larger_batches():
    data = made_up("1x8x8/3", 144)
    model = make_model("tiny_cnn", data, seed=0)
    loader, windows = (make_loader(data, batch_size=size, seed=0) for size in (8, 24))
    loss_fn = torch.nn.CrossEntropyLoss()
    subject = take_subject(model, loader, loss_fn, optimizer=None, rate=1 / 3, candidates=windows)
    assert [len(labels) for _, labels in subject.batches()] == [24] * 6
    beside = {"pipelined": CheapScorer(sb.scorers.Forward(), "", overlaps=True)}
    once = lambda rounds: True  # noqa: E731
    found = Inquiry(subject, Budget(math.inf), beside, looks=False, enough=once).run()
    (first,) = found.rounds
    assert first["pipelined"].phases["score"] > 0
    assert (first["pipelined"].steps, first["traditional"].steps) == (2, 3)
    assert first["scorer pipelined"].scored == 144
