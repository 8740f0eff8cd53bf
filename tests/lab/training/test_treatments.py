"""What is done instead of selecting, or with it, and the two arms that bound all others."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fixture_lab import (
    carry_out,
    few_digits,
    finish,
    fixture_plan,
    gone_on,
    same_runs,
    states_of,
    untimed,
)
from fixture_loaders import flat_tensors, same_tensors

import selective_backprop as sb
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.runner.grid import RunStore
from selective_backprop_lab.strategies import TREATMENTS, find_strategy, parse_strategies
from selective_backprop_lab.training.run import TrainingRun

SMALL_CNN = {"model": "small_cnn", "epochs": 2, "evaluations": 2}


def test_treatments_are_added_to_any_strategy_by_name():
    typed = "auto+smoothing-0.1+progressive"
    assert parse_strategies(f"traditional+trimming,{typed}") == ("traditional+trimming", typed)
    both = find_strategy(typed)
    assert (both.make, both.smoothing) == (find_strategy("auto").make, 0.1)
    assert both.halved == pytest.approx(1 / 3)
    assert parse_strategies("random_scored+trimming") == ("random-scored+trimming",)
    with pytest.raises(sb.ConfigurationError, match=r"smoothing-0\.1"):
        parse_strategies("auto+smothing-0.1")


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("auto+smoothing-0.1+smoothing-0.3", r"smoothing-0\.1 and smoothing-0\.3 cannot be"),
        ("auto+trimming+robust-loss", "trimming and robust-loss cannot be combined"),
        ("auto+progressive+progressive", "only once"),
        ("kath18-loss-gated+trimming", "cannot be another than the cross-entropy"),
    ],
)
def test_treatments_of_which_one_would_have_no_effect_are_refused(arm, said):
    with pytest.raises(sb.ConfigurationError, match=said):
        fixture_plan(arm, **SMALL_CNN)


@pytest.mark.parametrize("treatment", [each for each in TREATMENTS if each[-1] not in "35"])
def test_each_makes_another_training_and_goes_on_where_it_was_interrupted(treatment):
    plan = fixture_plan(f"auto+{treatment}", **SMALL_CNN)
    # Larger batches make two updates.
    whole, states = states_of(plan, few_digits())
    plain = carry_out(replace(plan, arm="auto"))
    assert not same_runs(whole, plain)
    assert same_runs(gone_on(plan, few_digits(), states[len(states) // 2]), whole)
    assert same_runs(gone_on(plan, few_digits(), states[0]), whole)


def test_selection_goes_by_losses_that_are_free_of_smoothing():
    run = carry_out(fixture_plan("auto+smoothing-0.3", **SMALL_CNN))
    known = run.loader.state_dict()
    least = 0.3 * torch.tensor(10.0).log()  # of what remains of a loss by smoothing, at the least
    losses = torch.cat([t.flatten() for t in flat_tensors(known) if t.is_floating_point()])
    assert float(losses[losses > 0].min()) < least / 2


def test_progressive_runs_see_small_images_first_and_pay_less_for_them():
    run = TrainingRun(fixture_plan("traditional+progressive", **SMALL_CNN), few_digits())
    sides = []
    run.model[0].register_forward_pre_hook(lambda _, inputs: sides.append(inputs[0].shape[-1]))
    finish(run)
    # Of eight batches three begin before a third of the run is done; two more are of test examples.
    assert sides == [4, 4, 4, *[8] * 7]
    assert run.points[-1].cost == pytest.approx(2 * (5 + 3 / 4) / 8, rel=1e-3)


@pytest.mark.filterwarnings("ignore:no example of class")
def test_progressive_runs_pay_for_their_preparation_in_full():
    arms = ("el2n", "el2n+progressive")
    plain, half = (carry_out(fixture_plan(arm, **SMALL_CNN)) for arm in arms)
    assert plain.meter.prepared == half.meter.prepared > 1.0
    saved = [one.cost - other.cost for one, other in zip(plain.points, half.points, strict=True)]
    # Of six updates two begin before a third of the run is done, each on a quarter of the examples.
    assert saved == pytest.approx([2 * 3 / 4 / 4] * 2, rel=1e-2)


def test_progressive_training_is_refused_where_there_is_nothing_to_halve():
    with pytest.raises(sb.ConfigurationError, match="images of half the side"):
        carry_out(fixture_plan("auto+progressive", model="perceptron"))


def test_reseeded_runs_have_the_data_of_a_seed_and_nothing_else_of_it():
    plans = [fixture_plan(arm, seed=3) for arm in ("traditional", "reseeded")]
    usual, again = (carry_out(plan) for plan in plans)
    assert not same_runs(usual, again)
    other = fixture_plan("traditional", seed=3 + 1_000_000)
    assert same_runs(again, carry_out(other))
    store = RunStore(Path("unused"))
    data = [store.data(replace(plan, anew=True)) for plan in plans]
    assert torch.equal(data[0].train_inputs, data[1].train_inputs)


def test_the_oracle_trains_on_right_labels_only_once_each():
    composition = Composition(copies=1.0, noise=0.2, places=200)
    drawn = {"composition": composition, "limit": None, "anew": True}
    plan = replace(fixture_plan("oracle", seed=1), **drawn)
    data = RunStore(Path("unused")).data(plan)
    run = TrainingRun(plan, data)
    trained = run.loader.strategy.subset.indices
    assert not data.flipped[trained].any()
    right = {*data.train_sources[~data.flipped].tolist()}
    assert sorted(data.train_sources[trained].tolist()) == sorted(right)
    with pytest.raises(sb.ConfigurationError, match="oracle needs wrong labels or copies"):
        carry_out(fixture_plan("oracle"))


def test_of_uneven_copies_unique_trains_as_the_oracle_does_and_without_any_as_traditional():
    copied = {"composition": Composition(copies=1.0, places=200), "limit": None, "anew": True}
    plans = [replace(fixture_plan(arm), **copied) for arm in ("unique", "oracle")]
    data = RunStore(Path("unused")).data(plans[0])
    unique, oracle = (TrainingRun(plan, data) for plan in plans)
    kept = [run.loader.strategy.subset.indices for run in (unique, oracle)]
    assert torch.equal(*kept)
    assert 0 < len(kept[0]) < 200
    alone = [carry_out(fixture_plan(arm)) for arm in ("unique", "traditional")]
    assert same_runs(*alone)
    assert alone[0].meter.prepared == 0.0


def test_runs_whose_data_are_drawn_anew_have_other_data_by_seed_and_record_it():
    composition = Composition(noise=0.2, places=100)
    drawn = {"composition": composition, "limit": None, "anew": True}
    plans = [replace(fixture_plan("auto", seed=seed), **drawn) for seed in (1, 2, 1)]
    one, other, same = (RunStore(Path("unused")).data(plan) for plan in plans)
    assert torch.equal(one.test_inputs, same.test_inputs)
    assert not torch.equal(one.test_inputs, other.test_inputs)
    assert not torch.equal(one.flipped, other.flipped)
    held = replace(plans[0], held_out=True)
    assert held.record_name != plans[0].record_name
    assert held.description()["held_out"] is held.description()["anew"] is True
    mine = RunStore(Path("unused")).data(held)
    rows = {row.numpy().tobytes() for row in one.test_inputs}
    # A digit may be there twice, but hardly as often as in another draw.
    assert sum(row.numpy().tobytes() in rows for row in mine.test_inputs) < 3


def test_averaged_runs_are_judged_by_the_mean_of_the_weights_of_the_last_quarter():
    run = TrainingRun(fixture_plan("traditional+averaging", **SMALL_CNN), few_digits())
    trained = list[dict[str, torch.Tensor]]()
    while not run.finished:
        run.advance(
            lambda: trained.append({k: v.clone() for k, v in run.model.named_parameters()}) or False
        )
    assert len(trained) == 8  # updates, of which three end in the last quarter, its ends included
    plain = carry_out(fixture_plan("traditional", **SMALL_CNN))
    assert same_tensors(run.model.state_dict(), plain.model.state_dict())
    judged = run.state_dict()["averaging"]
    for name, weights in trained[-1].items():
        mean = torch.stack([step[name] for step in trained[-3:]]).mean(0)
        torch.testing.assert_close(judged[f"module.{name}"], mean)
        assert not torch.equal(mean, weights)
    assert run.points[-1].test_loss != plain.points[-1].test_loss
    assert untimed(run.points[:1]) == untimed(plain.points[:1])
