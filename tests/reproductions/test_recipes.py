"""The paper's settings are its numbers, and what it leaves open is decided once."""

from collections.abc import Sequence

import pytest

from reproductions.jiang2019.recipes import EXPERIMENTS, OTHER_NETS, PaperSchedule
from selective_backprop_lab.data.datasets import DATASETS
from selective_backprop_lab.nets.models import MODELS
from selective_backprop_lab.recipe import Recipe

# As the authors' runs were told: the learning rate from so many candidates on.
PUBLISHED = {
    ("cifar10", "first"): {0: 0.1, 3_000_000: 0.02, 6_000_000: 0.004, 8_000_000: 0.0008},
    ("cifar10", "accelerated"): {0: 0.1, 2_400_000: 0.02, 4_800_000: 0.004, 6_400_000: 0.0008},
    ("cifar100", "first"): {0: 0.1, 3_000_000: 0.01, 6_000_000: 0.001},
    ("cifar100", "accelerated"): {0: 0.1, 2_400_000: 0.01, 4_800_000: 0.001},
    ("svhn", "first"): {0: 0.1, 36_263_280: 0.01, 72_526_560: 0.001},
    ("svhn", "accelerated"): {0: 0.1, 29_010_624: 0.01, 58_021_248: 0.001},
    **{(data, "static"): {0: 0.1} for data in EXPERIMENTS},
}
EXAMPLES = {"cifar10": 50_000, "cifar100": 50_000, "svhn": 604_388}


def rates_at(recipe: Recipe, candidates: Sequence[int], examples: int) -> list[float]:
    return [recipe.learning_rate_at(seen / (recipe.epochs * examples)) for seen in candidates]


@pytest.mark.parametrize(("data", "schedule"), PUBLISHED)
def test_the_learning_rate_falls_where_it_fell_in_the_authors_runs(data, schedule):
    published, examples = PUBLISHED[data, schedule], EXAMPLES[data]
    recipe = EXPERIMENTS[data].recipe(PaperSchedule(schedule))
    moments = [*published, recipe.epochs * examples]
    rates = list(published.values())
    assert rates_at(recipe, moments[:-1], examples) == pytest.approx(rates)
    assert rates_at(recipe, [moment - 1 for moment in moments[1:]], examples) == pytest.approx(
        rates
    )


@pytest.mark.parametrize("schedule", PaperSchedule)
@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_another_length_keeps_the_shape_of_the_schedule(experiment, schedule):
    whole, short = experiment.recipe(schedule), experiment.recipe(schedule, epochs=20)
    assert short.epochs == 20
    assert all(
        whole.learning_rate_at(share / 16) == short.learning_rate_at(share / 16)
        for share in range(17)
    )


@pytest.mark.parametrize(
    "recipe",
    [*(experiment.recipe() for experiment in EXPERIMENTS.values()), *OTHER_NETS.values()],
    ids=[*EXPERIMENTS, *OTHER_NETS],
)
def test_every_recipe_can_be_carried_out_and_has_what_all_share(recipe):
    assert recipe.data in DATASETS
    assert recipe.model in MODELS
    assert (recipe.batch_size, recipe.weight_decay, recipe.momentum) == (128, 5e-4, 0.9)
    assert recipe.learning_rate == 0.1
