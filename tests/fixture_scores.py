"""Data sets, models and trainings small enough to be scored at once."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb


def idle(model, seed):
    return 0.0


def in_order(*tensors, batch_size=4):
    return DataLoader(TensorDataset(*tensors), batch_size=batch_size)


def vectors(examples=11, seed=0):
    chance = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples, 5, generator=chance)
    return inputs, torch.randint(3, (examples,), generator=chance)


def images(examples=9):
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(examples, 1, 8, 8, generator=chance)
    return inputs, torch.randint(3, (examples,), generator=chance)


def net() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(144, 3),
    )
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2.0)
    return model


EL2N = pytest.param(sb.el2n_scores, id="el2n")

GRAND = pytest.param(
    lambda *args, **kwargs: sb.grand_scores(*args, loss_fn=nn.CrossEntropyLoss(), **kwargs),
    id="grand",
)

BOTH = pytest.mark.parametrize("scores_of", [EL2N, GRAND])


class Seeded:
    """Trains each model by giving it weights that only its seed decides."""

    def __init__(self, first: int = 0, returns: Callable[[int], float | None] = float) -> None:
        self.first, self.returns = first, returns
        self.seeds: list[int] = []

    def train(self, model, seed):
        chance = torch.Generator().manual_seed(self.first + seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(generator=chance)
        self.seeds.append(seed)
        return self.returns(seed)


def make_linear():
    return nn.Linear(5, 3)


def mappings(examples=11):
    inputs, targets = vectors(examples)
    data = [{"x": row, "y": target, "id": "a"} for row, target in zip(inputs, targets, strict=True)]
    return DataLoader(data, batch_size=4)
