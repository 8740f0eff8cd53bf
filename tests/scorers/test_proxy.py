"""A small model that scores, and learns from what the large one gets and from nothing else."""

from typing import ClassVar

import pytest
import torch
from fixture_loaders import NotedSampler, fixture_data, fresh_net, same_tensors
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb


class Small(nn.Module):
    """A small model with batch statistics, and dropout that draws from the global stream."""

    made: ClassVar[list["Small"]] = []

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(11)
        self.layers = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(dropout))
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)
        Small.made.append(self)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def make_loader(model: nn.Module, **options) -> sb.SelectiveLoader:
    loader = DataLoader(
        fixture_data(), 6, sampler=NotedSampler(40), num_workers=options.pop("workers", 0)
    )
    make = options.pop("make", Small)
    strategy = sb.proxy_sb(make, momentum, rate=1 / 2)
    generator = torch.Generator().manual_seed(0)
    return sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), strategy, generator=generator, **options
    )


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch) -> None:
    model.train()
    optimizer.zero_grad()
    functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


@pytest.mark.parametrize("workers", [0, 2])
def test_it_learns_what_it_would_learn_by_hand_from_the_batches_that_are_yielded(workers):
    loader = make_loader(fresh_net(), workers=workers, make=lambda: Small(dropout=0.0))
    proxy, byhand = Small.made[-1], Small(dropout=0.0)
    optimizer = momentum(byhand.parameters())
    for _ in range(3):
        for batch in loader:
            step(byhand, optimizer, batch)
            assert same_tensors(proxy.state_dict(), byhand.state_dict())
    assert loader.stats.kept < loader.stats.candidates


def test_scores_are_the_small_models_losses_in_eval_mode():
    context = sb.scorers.Context(
        4,
        8,
        fresh_net(),
        losses=lambda model, batch: functional.cross_entropy(
            model(batch[0]), batch[1], reduction="none"
        ),
    )
    running = sb.scorers.Proxy(Small, momentum).start(context)
    small = Small.made[-1]
    inputs, targets = fixture_data().tensors
    running.learn((inputs[:8], targets[:8]))
    scores = running.score((inputs, targets), None)
    assert small.training
    small.eval()
    with torch.no_grad():
        expected = functional.cross_entropy(small(inputs), targets, reduction="none")
    assert torch.equal(scores, expected)


def test_every_training_begins_with_a_new_model():
    list(make_loader(fresh_net()))
    one = Small.made[-1]
    make_loader(fresh_net())
    other = Small.made[-1]
    assert one is not other
    assert not same_tensors(one.state_dict(), other.state_dict())


@pytest.mark.parametrize(
    ("make_model", "make_optimizer", "name"),
    [(Small(), momentum, "make_model"), (None, momentum, "make_model"), (Small, 3, "make_opt")],
)
def test_what_makes_nothing_is_refused(make_model, make_optimizer, name):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"{name}.*function"):
        sb.scorers.Proxy(make_model, make_optimizer)
