"""Runs that end when a cost, or a number of seconds, is spent."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from fixture_lab import (
    BATCH,
    EXAMPLES,
    MeteredClock,
    carry_out,
    few_digits,
    fixture_plan,
    name_watched,
)
from fixture_loaders import same_tensors
from torch.optim.optimizer import register_optimizer_step_pre_hook

import selective_backprop as sb
from selective_backprop_lab import meter as metering
from selective_backprop_lab.budget import ScheduleBasis, schedule_note
from selective_backprop_lab.recipe import Rates
from selective_backprop_lab.strategies import STRATEGIES, LabStrategy
from selective_backprop_lab.training import run as runs


@pytest.mark.parametrize("rates", Rates)
def test_traditional_training_of_a_budget_is_that_of_as_many_epochs_to_the_last_bit(rates):
    # To the bit only where full batches make up the data set: in an epoch every batch is one
    # step of the schedule, in a budget a short one is as much less as it has fewer rows.
    recipe = {"rates": rates}
    one, other = (
        carry_out(fixture_plan("traditional", recipe=recipe, **length))
        for length in ({"epochs": 2}, {"cost": 2.0})
    )
    assert same_tensors(one.model.state_dict(), other.model.state_dict())
    assert one.points[-1].updates == other.points[-1].updates == 8


class Nothing(sb.selectors.AbstractSelector):
    terms = sb.selectors.Terms(0.5)

    def start(self, context):
        nothing = torch.empty(0, dtype=torch.int64)
        return sb.selectors.Stateless(lambda scores, *rest: sb.selectors.Choice(nothing))


@pytest.mark.filterwarnings("ignore:.*yielded no training batch")
def test_a_strategy_that_keeps_nothing_ends_with_its_budget_or_with_a_sentence(monkeypatch):
    for name, usual in (("auto", sb.auto()), ("top-k", sb.top_k(1 / 2))):
        found = replace(usual, selector=Nothing())
        monkeypatch.setitem(STRATEGIES, name, LabStrategy(lambda *_, found=found: found))
    with pytest.raises(sb.LossError, match="no example was kept in 100 epochs"):
        carry_out(fixture_plan("auto", cost=4.0))
    last = carry_out(fixture_plan("top-k", cost=1.0, evaluations=1)).points[-1]
    assert (last.updates, last.scored, last.cost) == (0, 3 * EXAMPLES, 1.0)


def test_the_warm_up_is_a_share_of_its_own_budget():
    points = carry_out(fixture_plan(cost=4.0, warmup=1 / 4, evaluations=200)).points
    young = [point for point in points if point.cost < 1.0]
    assert {point.scored for point in young} == {BATCH}  # the check of the very first batch
    assert all(point.trained == point.candidates for point in young)
    old = [point for point in points if point.cost > 2.0]
    assert all(point.scored > BATCH for point in old)
    assert points[-1].trained < points[-1].candidates


def test_seconds_end_a_run_by_its_own_clock_and_evaluation_takes_none_of_them(monkeypatch):
    clock = MeteredClock(monkeypatch)
    model = name_watched(monkeypatch, clock.tick)  # a second for each forward pass
    run = carry_out(fixture_plan("traditional", model=model, seconds=10.0, evaluations=5))
    assert [point.seconds for point in run.points] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert run.points[-1].updates == 10
    assert run.points[-1].phases["forward"] == 10.0
    assert clock.now == 15.0  # five evaluations, a second each


def test_an_evaluation_is_in_no_meter_however_slow(monkeypatch):
    clock = MeteredClock(monkeypatch)
    monkeypatch.setattr(metering, "time", SimpleNamespace(process_time=clock, perf_counter=clock))

    def slow(*_):
        clock.now += 1000.0
        return {"test_error": 50.0, "test_loss": 1.0}

    monkeypatch.setattr(runs, "evaluate", slow)
    last = carry_out(fixture_plan("selective-backprop")).points[-1]
    assert (last.seconds, last.cpu_seconds, sum(last.phases.values())) == (0.0, 0.0, 0.0)
    assert last.overhead == 1000.0 * fixture_plan("selective-backprop").evaluations
    assert (last.test_error, last.test_loss) == (50.0, 1.0)


THIRD = ("random-scored", "random-backprop")


@pytest.fixture
def learning_rates():
    """The learning rate of each step that an optimiser takes."""
    taken = []
    handle = register_optimizer_step_pre_hook(
        lambda optimizer, *_: taken.append(optimizer.param_groups[0]["lr"])
    )
    yield taken
    handle.remove()


def paced(arm, follows, **length):
    """A plan whose learning rate falls along half a cosine, so that it tells how far it is."""
    recipe = {"rates": Rates.COSINE, "learning_rate": 0.1}
    plan = fixture_plan(arm, rate=1 / 3, recipe=recipe, evaluations=2, **length)
    return replace(plan, lr_follows=follows)


def along_the_cosine(shares):
    return pytest.approx([0.05 * (1 + math.cos(math.pi * share)) for share in shares], abs=1e-12)


# Windows of 192: with what the epochs before left over, each epoch's third batch fills one.
@pytest.mark.parametrize("arm", THIRD)
@pytest.mark.parametrize(
    ("follows", "shares"),
    [
        (ScheduleBasis.RUN, [3 / 12, 7 / 12, 11 / 12]),
        (ScheduleBasis.CANDIDATES, [192 / 600, 392 / 600, 592 / 600]),
    ],
)
def test_three_epochs_of_an_arm_that_keeps_a_third(learning_rates, arm, follows, shares):
    carry_out(paced(arm, follows, epochs=3), few_digits(200))
    assert learning_rates == along_the_cosine(shares)


@pytest.mark.parametrize("epochs", [2, 8])
def test_timed_runs_have_the_schedule_of_the_recipe(monkeypatch, learning_rates, epochs):
    clock = MeteredClock(monkeypatch)
    model = name_watched(monkeypatch, clock.tick)
    timed = paced("traditional", ScheduleBasis.CANDIDATES, seconds=6.0, model=model)
    carry_out(replace(timed, recipe=replace(timed.recipe, epochs=epochs)))
    shares = [batch / (4 * epochs) for batch in range(1, 7)]  # of four an epoch, one a second
    assert learning_rates == along_the_cosine(shares)


def test_a_record_says_what_the_learning_rate_followed():
    def said(follows, **length):
        return paced("traditional", follows, **length).description()["schedules_follow"]

    named = {"epochs": "candidates seen", "cost": "cost spent", "seconds": "seconds spent"}
    for unit, usual in named.items():
        assert said(ScheduleBasis.RUN, **{unit: 3.0}) == usual
        assert schedule_note(usual) is None
        words = said(ScheduleBasis.CANDIDATES, **{unit: 3.0})
        assert words.startswith("share of traditional candidates")
        assert words in schedule_note(words)
    assert re.search(r"candidates of \d+ epochs", words)
