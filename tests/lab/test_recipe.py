import math
from dataclasses import fields, replace

import pytest
import torch
from fixture_lab import few_digits, fixture_plan
from torch import nn

import selective_backprop as sb
from selective_backprop_lab.recipe import RECIPES, Optimizer, Precision, Rates, Recipe, find_recipe
from selective_backprop_lab.training.run import TrainingRun


def fixture_recipe(**changes):
    return replace(Recipe("digits", "small_cnn", epochs=2, learning_rate=0.5), **changes)


def test_some_classes_are_trained_as_all_are():
    assert find_recipe("mnist:5-9") == replace(RECIPES["mnist"], data="mnist:5-9")


@pytest.mark.parametrize(
    ("rates", "shape"),
    [
        (Rates.CYCLE, {0.0: 0.0, 0.1: 0.5, 0.2: 1.0, 0.6: 0.5, 0.8: 0.25, 1.0: 0.0}),
        (Rates.COSINE, {0.0: 1.0, 1 / 3: 0.75, 0.5: 0.5, 2 / 3: 0.25, 1.0: 0.0}),
        (Rates.CONSTANT, {0.0: 1.0, 0.5: 1.0, 1.0: 1.0}),
        (
            Rates.STEPS,
            {0.0: 1.0, 0.39: 1.0, 0.4: 0.2, 0.59: 0.2, 0.6: 0.04, 0.79: 0.04, 0.8: 0.008, 1: 0.008},
        ),
    ],
)
def test_the_learning_rate_follows_its_shape(rates, shape):
    recipe = fixture_recipe(rates=rates)
    for progress, share in shape.items():
        assert recipe.learning_rate_at(progress) == pytest.approx(0.5 * share, abs=1e-12)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.9, True), (0.9, False), (0.0, True)])
def test_the_momentum_is_nesterovs_unless_the_recipe_says_otherwise(momentum, nesterov):
    recipe = fixture_recipe(momentum=momentum, nesterov=nesterov)
    (group,) = recipe.make_optimizer([torch.nn.Parameter(torch.zeros(1))]).param_groups
    assert (group["momentum"], group["nesterov"]) == (momentum, nesterov and momentum > 0)


def test_adamw_takes_its_numbers_from_the_recipe():
    recipe = fixture_recipe(optimizer=Optimizer.ADAMW, momentum=0.8, weight_decay=0.1)
    optimizer = recipe.make_optimizer([torch.nn.Parameter(torch.zeros(1))])
    (group,) = optimizer.param_groups
    assert isinstance(optimizer, torch.optim.AdamW)
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.5, (0.8, 0.95), 0.1)


@pytest.mark.parametrize(
    ("changes", "left_out"),
    [
        ({}, {"steps", "decay", "optimizer"}),
        ({"rates": Rates.STEPS}, {"optimizer"}),
        ({"momentum": 0.0}, {"steps", "decay", "nesterov", "optimizer"}),
        ({"optimizer": Optimizer.ADAMW}, {"steps", "decay", "nesterov"}),
    ],
)
def test_a_description_leaves_out_what_has_no_effect(changes, left_out):
    recipe = fixture_recipe(**changes)
    assert {field.name for field in fields(Recipe)} - recipe.config().keys() == left_out


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("steps", steps) for steps in ((), (0.5, 1.0), (0.3, 0.3), (math.nan,))),
        ("decay", 1.0),
        ("batch_size", 0),
        ("learning_rate", math.inf),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(sb.ConfigurationError, match=f"^{name}="):
        fixture_recipe(**{name: value})


@pytest.mark.parametrize("arm", ["traditional", "selective-backprop"])
def test_a_run_in_bf16_scores_trains_and_evaluates_in_it(arm):
    plan = fixture_plan(arm, recipe={"precision": Precision.BF16}, evaluations=1)
    run, seen = TrainingRun(plan, few_digits()), set()
    layer = next(m for m in run.model.modules() if isinstance(m, nn.Linear))

    def note(module, inputs, outputs):
        seen.add((outputs.dtype, torch.is_grad_enabled()))

    layer.register_forward_hook(note)
    point = run.advance()
    assert run.model(run.data.train_inputs[:2].float()).dtype is torch.float32
    assert seen == {(torch.bfloat16, True), (torch.bfloat16, False)}
    assert 0 <= point.test_error <= 100
