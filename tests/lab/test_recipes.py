import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop.lab.datasets import DATASETS
from selective_backprop.lab.models import MODELS
from selective_backprop.lab.recipes import RECIPES, Rates, Recipe, find_recipe, rate_factor


def fixture_recipe(**changes):
    return replace(Recipe("digits", "small_cnn", epochs=2, learning_rate=0.5), **changes)


def test_every_data_set_has_a_recipe_of_its_own_name():
    assert set(RECIPES) == set(DATASETS)
    assert all(find_recipe(name).data == name for name in DATASETS)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_recipe_names_a_model_that_there_is(recipe):
    assert recipe.model in MODELS


def test_there_is_no_recipe_for_unknown_data_and_the_known_is_listed():
    with pytest.raises(sb.ConfigurationError, match="'imagenet'") as refusal:
        find_recipe("imagenet")
    assert all(name in str(refusal.value) for name in RECIPES)


@pytest.mark.parametrize(
    ("rates", "shape"),
    [
        (Rates.CYCLE, {0.0: 0.0, 0.1: 0.5, 0.2: 1.0, 0.6: 0.5, 0.8: 0.25, 1.0: 0.0}),
        (Rates.COSINE, {0.0: 1.0, 1 / 3: 0.75, 0.5: 0.5, 2 / 3: 0.25, 1.0: 0.0}),
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


@given(st.sampled_from(Rates), st.floats(0.0, 1.0))
def test_no_learning_rate_is_negative_or_above_the_highest(rates, progress):
    assert 0.0 <= rate_factor(rates, progress) <= 1.0


@given(st.sampled_from(Rates), st.floats(-10.0, 10.0))
def test_before_its_start_and_after_its_end_a_run_has_the_learning_rate_of_that_moment(
    rates, progress
):
    recipe = fixture_recipe(rates=rates)
    clamped = min(1.0, max(0.0, progress))
    assert recipe.learning_rate_at(progress) == recipe.learning_rate_at(clamped)


@pytest.mark.parametrize("name", ["epochs", "batch_size", "learning_rate"])
@pytest.mark.parametrize("value", [0, -1])
def test_what_must_be_positive_is_refused_by_name_otherwise(name, value):
    with pytest.raises(sb.ConfigurationError, match=f"^{name}={value}: it must be positive"):
        fixture_recipe(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1])
def test_a_learning_rate_that_is_no_positive_number_is_refused(value):
    with pytest.raises(sb.ConfigurationError, match=r"^learning_rate="):
        fixture_recipe(learning_rate=value)
