"""Every arm trains on a few digits, and is charged for all that it does."""

import math
from functools import cache

import pytest
from fixture_lab import (
    BATCH,
    EXAMPLES,
    TESTED,
    carry_out,
    count_rows,
    few_digits,
    fixture_plan,
    name_watched,
    run_plans,
)
from fixture_loaders import same_tensors

import selective_backprop as sb
from selective_backprop_lab.strategies import STRATEGIES
from selective_backprop_lab.training.run import TrainingRun

# A third of three epochs is one, four batches, and two of each half of the data.
SETTINGS = {"stale": 2, "keep": 1 / 2, "models": 2, "young": 1 / 3}
PRUNED = ("diet-sb", "el2n", "el2n-random", "grand")
EL2N, GRAND, HALVES = 2 * (1 + 1 / 3), 2 * (1 + 1), 2 * 1 / 2 + 1 / 3
PREPARED = dict.fromkeys(PRUNED, EL2N) | {"grand": GRAND, "rho-loss": HALVES, "cleaned": 1 + 1 / 3}
PREPARED["rho-loss-shared"] = HALVES / 5
WITHOUT_PASSES = {"traditional", "random-backprop", "recorded-sb", "infobatch", "easy-skip", "auto"}
WITHOUT_PASSES |= {"el2n", "el2n-random", "grand", "tail-sft", "reseeded"}
WITHOUT_PASSES |= {"auto-trim", "auto-brief", "cleaned", "unique"}
ARMS = [arm for arm in STRATEGIES if arm != "oracle"]  # it refuses data without wrong labels
# One of each kind of arms, which train twice here.
KINDS = ("traditional", "selective-backprop", "stale-sb", "kath18", "kakurenbo", "auto", *PREPARED)
KINDS += ("proxy-sb", "recorded-sb")


@cache
def trained(arm, **changes):
    return carry_out(fixture_plan(arm, **SETTINGS | changes))


def spent(run):
    """What the counters of a run come to, in passes of traditional training."""
    last, price = run.points[-1], run.meter.price
    passes = price.score * last.scored + (3 + price.learn) * last.trained
    return PREPARED.get(run.config.arm, 0.0) + passes / (3 * EXAMPLES)


@pytest.mark.parametrize("arm", KINDS)
def test_the_record_of_every_arm_is_whole_and_says_what_the_run_alone_says(tmp_path, arm):
    plan = fixture_plan(arm, **SETTINGS)
    [record] = run_plans([plan], few_digits(), tmp_path)
    run = trained(arm)
    assert record.finished
    assert record.header.config == plan.description()
    assert [round(3 * point.progress) for point in record.points] == [1, 2, 3]
    assert all(0.0 <= point.test_error <= 100.0 for point in record.points)
    assert all(math.isfinite(point.test_loss + point.train_loss) for point in record.points)
    errors = [[point.test_error for point in each.points] for each in (record, run)]
    assert errors[0] == errors[1]
    meters = record.end["meters"]
    assert meters["kept"] == record.points[-1].trained > 0
    assert meters["batches"] == record.points[-1].updates
    assert meters["prepared_cost"] == pytest.approx(PREPARED.get(arm, 0.0))
    started = TrainingRun(plan, few_digits())
    assert not same_tensors(started.model.state_dict(), run.model.state_dict())


@pytest.mark.parametrize("arm", ARMS)
def test_the_cost_of_every_arm_is_what_its_counters_come_to(arm):
    run = trained(arm)
    last = run.points[-1]
    assert last.cost == pytest.approx(spent(run))
    if arm != "kakurenbo":  # it scores what it hides, if anything
        assert (last.scored == 0) == (arm in WITHOUT_PASSES)
    assert last.trained <= last.loaded <= last.candidates
    assert (run.meter.price.score == 1.0) == (arm != "proxy-sb")


@pytest.mark.parametrize("arm", ARMS)
def test_preparing_takes_seconds_of_its_own_and_all_phases_make_up_the_seconds(arm):
    for point in trained(arm).points:
        assert sum(point.phases.values()) == pytest.approx(point.seconds, abs=1e-6)
        prepared = point.phases.get("prepare", 0.0)
        assert (prepared > 0.0) == (arm in {*PREPARED, "proxy-sb", "unique"})
        assert prepared < point.seconds


@pytest.mark.parametrize("arm", ["el2n", "rho-loss", "diet-sb", "cleaned"])
def test_what_preparing_costs_is_what_all_the_nets_together_saw(monkeypatch, arm):
    rows = {"trained": 0, "looked at": 0}
    model = name_watched(monkeypatch, count_rows(rows))
    run = carry_out(fixture_plan(arm, model=model, **SETTINGS))
    last = run.points[-1]
    rehearsed = 0 if arm in ("rho-loss", "cleaned") else 16  # examples tried before any training
    prepared_looks = rows["looked at"] - last.scored - 3 * TESTED - rehearsed
    prepared_rows = rows["trained"] - last.trained
    assert run.meter.prepared == pytest.approx(
        (prepared_looks + 3 * prepared_rows) / (3 * EXAMPLES)
    )
    assert run.meter.prepared == pytest.approx(PREPARED[arm])


@pytest.mark.parametrize("arm", KINDS)
def test_a_budget_ends_every_arm_within_a_batch_and_a_window_of_scoring(arm):
    rate, budget = 1 / 2, 5.0
    run = trained(arm, cost=budget, keep=0.9, young=1 / 10, evaluations=2)
    last, price = run.points[-1], run.meter.price
    # what is scored until a batch is full, in whole candidate batches; kakurenbo looks at what
    # it hid, three tenths at most, where an epoch ends
    looks = 0.0 if arm in WITHOUT_PASSES else BATCH / rate + BATCH
    looks = max(looks, 0.3 * EXAMPLES) if arm == "kakurenbo" else looks
    over = (price.score * looks + (3 + price.learn) * BATCH) / (3 * EXAMPLES)
    assert budget <= last.cost < budget + over
    assert last.progress == 1.0


def test_a_budget_of_seconds_is_refused_where_models_train_for_a_share_of_the_epochs():
    for arm in PREPARED:
        with pytest.raises(sb.ConfigurationError, match=rf"^{arm} trains .* a budget in passes$"):
            fixture_plan(arm, seconds=5.0)
    for arm in STRATEGIES.keys() - PREPARED.keys():
        assert fixture_plan(arm, seconds=5.0)


@pytest.mark.parametrize("arm", sorted(PREPARED))
def test_a_budget_that_preparing_uses_up_is_refused_with_both_numbers(arm):
    run = TrainingRun(fixture_plan(arm, cost=0.1), few_digits())
    said = rf"preparing {arm} costs \d\.\d\d passes, of a budget of 0\.1 "
    with pytest.raises(sb.ConfigurationError, match=said):
        run.advance()


TOGETHER = ("el2n", "grand", "rho-loss", "proxy-sb", "recorded-sb", "easy-skip", "kakurenbo")


def test_arms_that_prepare_or_record_take_turns_as_if_each_had_been_alone():
    plans = [fixture_plan(arm, **SETTINGS) for arm in TOGETHER]
    runs = [TrainingRun(plan, few_digits()) for plan in plans]
    while not all(run.finished for run in runs):
        for run in runs:
            run.advance()
    for run in runs:
        alone = trained(run.config.arm)
        assert same_tensors(run.model.state_dict(), alone.model.state_dict())
        assert run.points[-1].cost == alone.points[-1].cost
