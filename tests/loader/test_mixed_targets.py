"""MixUp in the collate function is warned of where indices would lie."""

import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, default_collate

import selective_backprop as sb
from selective_backprop._batches.mixed_targets import warn_of_mixtures

HALF = sb.selective_backprop(rate=1 / 2)


def mix(images: Tensor, labels: Tensor, share: float = 0.7) -> tuple[Tensor, Tensor]:
    """MixUp: each example and its neighbour in the batch, shared."""
    soft = functional.one_hot(labels, 10).float()
    return tuple(share * part + (1 - share) * part.roll(1, 0) for part in (images, soft))


def begin(strategy: sb.Strategy, mixing: Any, **options: Any) -> list[str]:
    """Take the first batches, and return what was warned of."""

    def collate(examples: list[Any]) -> Any:
        batch = default_collate(examples)
        return batch if mixing is None else mixing(*batch)

    generator = torch.Generator().manual_seed(0)
    images = torch.randn(96, 64, generator=generator)
    data = TensorDataset(images, torch.randint(10, (96,), generator=generator))
    loader = sb.SelectiveLoader(
        DataLoader(data, 32, collate_fn=collate),
        *(nn.Linear(64, 10), nn.CrossEntropyLoss(), strategy),
        **options,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in zip(range(2), loader, strict=False):
            pass
    return [str(warning.message) for warning in caught]


BY_INDEX = [
    sb.stale_sb(rate=1 / 2, epochs=3),
    sb.predicted_sb(rate=1 / 2),
    sb.rho_loss(torch.zeros(96), rate=1 / 2),
]


@pytest.mark.parametrize("strategy", BY_INDEX, ids=lambda strategy: strategy.name)
def test_mixtures_in_the_collate_function_are_warned_of_once_where_indices_count(strategy) -> None:
    [said] = begin(strategy, mix)
    assert "mixed from two" in said
    assert "loader yields" in said
    assert begin(strategy, None) == []


def test_mixtures_are_warned_of_where_recorded_losses_count_and_nowhere_else() -> None:
    options = {"with_selection": True, "epochs": 4}
    [said] = begin(sb.easy_skip(), mix, **options)
    assert "look mixed" in said
    assert begin(sb.easy_skip(), None, **options) == []
    for strategy in (HALF, sb.random_backprop(rate=1 / 2), sb.traditional()):
        assert begin(strategy, mix) == []


ONE_HOT = functional.one_hot(torch.arange(8) % 4, 5).float()


@pytest.mark.parametrize(
    ("targets", "mixed"),
    [
        (0.6 * ONE_HOT + 0.4 * ONE_HOT.roll(1, 0), True),
        ((0.6 * ONE_HOT + 0.4 * ONE_HOT.roll(1, 0)).half(), True),
        (0.9 * (0.5 * ONE_HOT + 0.5 * ONE_HOT.roll(1, 0)) + 0.1 / 5, True),  # and smoothed
        (ONE_HOT, False),
        (0.9 * ONE_HOT + 0.1 / 5, False),  # smoothed alone
        (torch.linspace(0, 3, 40).view(8, 5).sin().softmax(1), False),  # of a teacher
        (torch.tensor([[0.3, 0.7, 0.0, 0.0], [0.1, 0.6, 0.3, 0.0]]), False),  # of a sure one
        (torch.tensor([[0.3, 0.7], [1.0, 0.0]]), False),  # two classes: nothing can be told
        (torch.zeros(0, 5), False),
        (torch.ones(8, 5) * torch.nan, False),
        (2 * ONE_HOT + ONE_HOT.roll(1, 0), False),  # no probabilities
    ],
)
def test_mixed_targets_are_told_from_others(targets, mixed) -> None:
    with pytest.warns(sb.SelectionWarning, match="MixUp") if mixed else nullcontext():
        warn_of_mixtures({"pixels": torch.rand(8, 1, 8, 8), "answers": {"soft": targets}})
