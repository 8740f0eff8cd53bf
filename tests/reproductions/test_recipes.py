"""The paper's settings are its numbers, and what it leaves open is decided once."""

from dataclasses import replace

import pytest

from reproductions.jiang2019.scales import EXPERIMENTS

# As the authors' runs were told: the learning rate from so many candidates on.
PUBLISHED = {
    ("cifar10", "first"): {0: 0.1, 3_000_000: 0.02, 6_000_000: 0.004, 8_000_000: 0.0008},
    ("cifar10", "accelerated"): {0: 0.1, 2_400_000: 0.02, 4_800_000: 0.004, 6_400_000: 0.0008},
    ("cifar100", "first"): {0: 0.1, 3_000_000: 0.01, 6_000_000: 0.001},
    ("cifar100", "accelerated"): {0: 0.1, 2_400_000: 0.01, 4_800_000: 0.001},
    ("svhn", "first"): {0: 0.1, 36_263_280: 0.01, 72_526_560: 0.001},
    ("svhn", "accelerated"): {0: 0.1, 29_010_624: 0.01, 58_021_248: 0.001},
}
EXAMPLES = {"cifar10": 50_000, "cifar100": 50_000, "svhn": 604_388}


@pytest.mark.parametrize(("data", "schedule"), PUBLISHED)
def test_the_learning_rate_falls_where_it_fell_in_the_authors_runs(data, schedule):
    published, experiment = PUBLISHED[data, schedule], EXPERIMENTS[data]
    whole = recipe = experiment.recipe
    if schedule == "accelerated":
        recipe = replace(recipe, steps=experiment.accelerated)
    candidates = whole.epochs * EXAMPLES[data]
    moments, rates = [*published, candidates], list(published.values())

    def rates_at(moments):
        return [recipe.learning_rate_at(seen / candidates) for seen in moments]

    assert rates_at(moments[:-1]) == pytest.approx(rates)
    assert rates_at([moment - 1 for moment in moments[1:]]) == pytest.approx(rates)
