"""A small model that scores, learns from what the large one gets, and disturbs nothing."""

from typing import ClassVar

import pytest
import torch
from fixture_loaders import (
    NotedSampler,
    bits,
    cross_entropies,
    fixture_data,
    fresh_net,
    same_tensors,
    streams,
)
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


def plain_loader(workers: int = 0) -> DataLoader:
    return DataLoader(fixture_data(), 6, sampler=NotedSampler(40), num_workers=workers)


def make_loader(
    model: nn.Module, make=Small, *, workers: int = 0, warmup: int = 1
) -> sb.SelectiveLoader:
    schedule = sb.Schedule(warmup_epochs=warmup)
    strategy = sb.proxy_sb(make, momentum, rate=1 / 2, schedule=schedule)
    generator = torch.Generator().manual_seed(0)
    return sb.SelectiveLoader(
        plain_loader(workers), model, nn.CrossEntropyLoss(), strategy, generator=generator
    )


def learned(loader: sb.SelectiveLoader) -> object:
    return bits(loader.state_dict()["parts"]["scorer"])


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
    context = sb.scorers.Context(4, 8, fresh_net(), losses=cross_entropies)
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


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_model_and_the_global_streams_are_not_touched(warmup):
    model = fresh_net()
    model.layers[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(4)
    next(iter(plain_loader()))
    expected = streams()[:2]
    torch.manual_seed(4)
    next(iter(make_loader(model, warmup=warmup)))
    assert streams()[:2] == expected
    assert same_tensors(model.state_dict(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_it_learns_where_the_loop_runs_without_gradients():
    loader = make_loader(fresh_net(), warmup=0)
    before = learned(loader)
    with torch.no_grad():
        next(iter(loader))
    assert learned(loader) != before


@pytest.mark.parametrize(
    ("make_model", "make_optimizer", "name"),
    [(Small(), momentum, "make_model"), (None, momentum, "make_model"), (Small, 3, "make_opt")],
)
def test_what_makes_nothing_is_refused(make_model, make_optimizer, name):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"{name}.*function"):
        sb.scorers.Proxy(make_model, make_optimizer)


def test_what_stands_for_it_in_a_saved_state_is_the_same_in_every_process():
    assert repr(sb.scorers.Proxy(Small, momentum)) == "Proxy(model=Small, optimizer=momentum)"
