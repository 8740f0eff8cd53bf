"""Redundancy is that of the losses and gradients there are, as plain Python has them."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from selective_backprop._batches.structure import Layout
from selective_backprop._pipeline.source import open_source
from selective_backprop.guide._redundancy import Redundancy, look
from selective_backprop.guide._subject import Subject

# One weight per input, each example has one: its gradient is its own axis.
TARGETS = [1.0, 0.5, 8.0, 0.25, -4.0, 0.125]


def subject(batch_size: int) -> Subject:
    data = TensorDataset(torch.eye(6), torch.tensor(TARGETS))
    loader = DataLoader(data, batch_size)
    model = nn.Sequential(nn.Linear(6, 1, bias=False), nn.Dropout(0.9))
    nn.init.zeros_(model[0].weight)
    return Subject(
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        losses=lambda model, batch: (model(batch[0])[:, 0] - batch[1]).square() / 2,
        source=open_source(loader),
        layout=Layout(),
        device=None,
        batch_size=2,
        window=6,
        examples=6,
        autocast=None,
    )


@pytest.mark.parametrize("batch_size", [2, 3, 6])
def test_the_highest_third_holds_and_supplies_what_it_does(batch_size):
    one = subject(batch_size)
    found = look(one, list(one.batches()), steps=7)
    losses = sorted(target**2 / 2 for target in TARGETS)
    # Losses of 32 and 8, whose gradients are 8 and 4 along axes of their own.
    whole = sum(target**2 for target in TARGETS)
    assert (found.steps, found.examples, found.rate) == (7, 6, pytest.approx(1 / 3))
    assert found.loss_share == pytest.approx(40 / sum(losses))
    assert found.gradient_share == pytest.approx(80 / whole)
    assert found.cosine == pytest.approx(math.sqrt(80 / whole), rel=1e-5)
    assert found.equal_signs == pytest.approx(2 / 6)
    assert found.random_equal_signs == pytest.approx(2 / 6)
    assert (found.quantiles[0], found.quantiles[-1]) == pytest.approx((losses[0], losses[-1]))
    assert one.model.training
    assert all(parameter.grad is None for parameter in one.model.parameters())


def test_shares_are_read_off_the_losses_between_the_ends():
    found = Redundancy(0, 3, 1 / 3, (0.0, 1.0, 5.0), *[0.0] * 6)  # mean of the curve: 1.75
    assert found.below_mean() == pytest.approx(0.75)
    keeps = [0.25, min(1.0, 2 - 2 / math.e), 1.0]
    assert found.kept_by_confidence(0.25) == pytest.approx((keeps[0] / 2 + 1 + keeps[2] / 2) / 2)


@pytest.mark.parametrize("targets", [[math.nan] * 6, [math.inf, *TARGETS[1:]]], ids=["all", "one"])
def test_where_losses_or_gradients_are_not_finite_nothing_is_found(targets):
    one = subject(2)
    batches = [
        (inputs, part)
        for inputs, part in zip(torch.eye(6).split(2), torch.tensor(targets).split(2), strict=True)
    ]
    assert look(one, batches, steps=7) is None
