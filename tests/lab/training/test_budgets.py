"""Runs that end when a cost, or a number of seconds, is spent."""

from types import SimpleNamespace

import pytest
import torch
from fixture_cases import share_of_cases
from fixture_doors import same_tensors
from fixture_lab import (
    BATCH,
    EXAMPLES,
    Clock,
    carry_out,
    few_digits,
    fixture_plan,
    name_model,
    name_watched,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import selective_backprop as sb
from selective_backprop_lab import meter as metering
from selective_backprop_lab.recipe import Rates, Recipe
from selective_backprop_lab.strategies import STRATEGIES
from selective_backprop_lab.training import run as runs
from selective_backprop_lab.training.evaluation import Evaluation
from selective_backprop_lab.training.run import TrainingRun


@pytest.fixture
def learning_rates(monkeypatch):
    """Every fraction of a run that was asked for its learning rate."""
    asked = []
    answer = Recipe.learning_rate_at

    def noted(recipe, progress):
        asked.append(progress)
        return answer(recipe, progress)

    monkeypatch.setattr(Recipe, "learning_rate_at", noted)
    return asked


# What is prepared costs more than the smallest of these; see test_every_arm.
@pytest.mark.parametrize("arm", [name for name, arm in STRATEGIES.items() if arm.prepare is None])
@pytest.mark.filterwarnings("ignore:epoch . yielded no training batch")  # where few are expired
@given(budget=st.floats(0.05, 2.0), rate=st.sampled_from([1 / 4, 1 / 3, 1 / 2, 0.99]))
@share_of_cases(1 / 8)
def test_an_arm_ends_when_its_cost_is_spent_and_a_window_and_batch_over_at_most(arm, budget, rate):
    points = carry_out(fixture_plan(arm, cost=budget, rate=rate, warmup=0.1)).points
    # what is scored until a batch is full, in whole candidate batches, and the batch
    overshoot = (BATCH / rate + BATCH + 3 * BATCH) / (3 * EXAMPLES)
    assert budget <= points[-1].cost < budget + overshoot
    assert points[-1].progress == 1.0
    assert [point.progress >= due / 3 for due, point in enumerate(points, start=1)] == [True] * 3


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


@pytest.mark.parametrize("arm", ["traditional", "random-backprop", "selective-backprop"])
@pytest.mark.parametrize("budget", [1.5, 3.0])
def test_the_learning_rate_follows_the_share_of_its_own_budget(arm, budget, learning_rates):
    points = carry_out(fixture_plan(arm, cost=budget, evaluations=50)).points
    assert learning_rates == sorted(learning_rates)
    assert learning_rates[0] <= (EXAMPLES + 3 * BATCH) / (3 * EXAMPLES) / budget
    assert learning_rates[-1] == 1.0
    spent = {point.updates: min(1.0, point.cost / budget) for point in points}
    assert len(spent) == len(learning_rates) == points[-1].updates
    assert learning_rates == pytest.approx([spent[update] for update in sorted(spent)])


@pytest.mark.parametrize("budget", [2.0, 4.0])
def test_the_warm_up_is_a_share_of_its_own_budget(budget):
    points = carry_out(fixture_plan(cost=budget, warmup=1 / 4, evaluations=200)).points
    young = [point for point in points if point.cost < budget / 4]
    assert {point.scored for point in young} == {BATCH}  # the check of the very first batch
    assert all(point.trained == point.candidates for point in young)
    old = [point for point in points if point.cost > budget / 2]
    assert all(point.scored > BATCH for point in old)
    assert points[-1].trained < points[-1].candidates


def test_seconds_end_a_run_by_its_own_clock_and_evaluation_takes_none_of_them(monkeypatch):
    clock = Clock(monkeypatch)
    model = name_watched(monkeypatch, clock.tick)  # a second for each forward pass
    run = carry_out(fixture_plan("traditional", model=model, seconds=10.0, evaluations=5))
    assert [point.seconds for point in run.points] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert run.points[-1].updates == 10
    assert run.points[-1].phases["forward"] == 10.0
    assert clock.now == 15.0  # five evaluations, a second each


def test_an_evaluation_is_in_no_meter_however_slow(monkeypatch):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(metering, "time", SimpleNamespace(process_time=clock, perf_counter=clock))

    def slow(*_):
        clock.now += 1000.0
        return Evaluation(50.0, 1.0, (50.0,) * 10, None)

    monkeypatch.setattr(runs, "evaluate", slow)
    last = carry_out(fixture_plan("selective-backprop")).points[-1]
    assert (last.seconds, last.cpu_seconds, sum(last.phases.values())) == (0.0, 0.0, 0.0)
    assert last.overhead == 1000.0 * fixture_plan("selective-backprop").evaluations
    assert (last.test_error, last.test_loss) == (50.0, 1.0)


def test_a_selective_run_of_seconds_pays_for_its_scoring(monkeypatch, learning_rates):
    clock = Clock(monkeypatch)
    model = name_watched(monkeypatch, clock.tick)
    plan = fixture_plan("random-scored", model=model, seconds=10.0, evaluations=1)
    last = carry_out(plan).points[-1]
    # two candidate batches are scored for each one that is trained on
    assert (last.updates, last.seconds) == (4, 12.0)
    assert (last.phases["score"], last.phases["forward"]) == (8.0, 4.0)
    assert learning_rates == pytest.approx([0.2, 0.5, 0.8, 1.0])


def test_a_budget_ends_even_where_nothing_is_ever_selected(monkeypatch):
    looks = []

    class Flat(nn.Module):
        """All its losses are equal, and no loss is higher than an equal one."""

        def __init__(self, channels, classes, side):
            super().__init__()
            self.logits = nn.Parameter(torch.zeros(classes))

        def forward(self, images):
            looks.append(len(images))
            assert len(looks) < 100, "it does not end"
            return self.logits.expand(len(images), -1)

    plan = fixture_plan(
        model=name_model(monkeypatch, "flat", Flat),
        cost=1.0,
        warmup=0.0,
        draw=sb.selectors.Draw.BERNOULLI,
        evaluations=1,
    )
    run = TrainingRun(plan, few_digits())
    with pytest.warns(sb.SelectionWarning, match="yielded no training batch"):
        last = run.advance()
    assert (last.updates, last.scored, last.cost) == (0, 3 * EXAMPLES, 1.0)
