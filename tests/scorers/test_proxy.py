"""A small model that scores, and learns from what the large one gets and from nothing else."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from fixture_doors import NotedSampler, fixture_data, fresh_net, same_tensors
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


def make_door(model: nn.Module, **options) -> sb.SelectiveLoader:
    schedule = options.pop("schedule", sb.Schedule(1))
    loader = DataLoader(
        fixture_data(), 6, sampler=NotedSampler(40), num_workers=options.pop("workers", 0)
    )
    make = options.pop("make", Small)
    strategy = sb.proxy_sb(make, momentum, rate=1 / 2, schedule=schedule)
    generator = torch.Generator().manual_seed(0)
    return sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), strategy, generator=generator, **options
    )


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch) -> None:
    model.train()
    optimizer.zero_grad()
    functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


def streams() -> list:
    return [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()]


@pytest.mark.parametrize("workers", [0, 2])
def test_it_learns_what_it_would_learn_by_hand_from_the_batches_that_are_yielded(workers):
    door = make_door(fresh_net(), workers=workers, make=lambda: Small(dropout=0.0))
    proxy, byhand = Small.made[-1], Small(dropout=0.0)
    optimizer = momentum(byhand.parameters())
    for _ in range(3):
        for batch in door:
            step(byhand, optimizer, batch)
            assert same_tensors(proxy.state_dict(), byhand.state_dict())
    assert door.stats.kept < door.stats.candidates


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_model_and_the_global_streams_are_not_touched(warmup):
    model = fresh_net()
    model.layers[1].eval()
    door = make_door(model, schedule=sb.Schedule(warmup))
    torch.manual_seed(4)
    next(iter(DataLoader(fixture_data(), 6, sampler=NotedSampler(40))))
    expected = streams()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(4)
    batches = iter(door)
    next(batches)
    assert streams() == expected
    assert same_tensors(model.state_dict(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


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
    list(make_door(fresh_net()))
    one = Small.made[-1]
    make_door(fresh_net())
    other = Small.made[-1]
    assert one is not other
    assert not same_tensors(one.state_dict(), other.state_dict())


def test_it_learns_where_the_loop_runs_without_gradients():
    door = make_door(fresh_net())
    before = {name: value.clone() for name, value in Small.made[-1].state_dict().items()}
    with torch.no_grad():
        next(iter(door))
    assert not same_tensors(Small.made[-1].state_dict(), before)


def test_a_proxy_goes_on_from_its_state():
    def rest(door: sb.SelectiveLoader) -> list[list[float]]:
        torch.manual_seed(0)
        return [batch[0][:, 0].tolist() for batch in door]

    whole, resumed = make_door(fresh_net()), make_door(fresh_net())
    one, other = Small.made[-2:]
    list(whole)
    state = whole.state_dict()
    before = repr(state)
    expected = rest(whole)
    assert repr(state) == before
    for _ in range(2):
        resumed.sampler.generator.manual_seed(0)
        list(resumed.sampler)  # the pass that the other one has made
        resumed.load_state_dict(state)
        assert rest(resumed) == expected
        assert same_tensors(one.state_dict(), other.state_dict())
    assert repr(state) == before


@pytest.mark.parametrize(
    ("make_model", "make_optimizer", "name"),
    [(Small(), momentum, "make_model"), (None, momentum, "make_model"), (Small, 3, "make_opt")],
)
def test_what_makes_nothing_is_refused(make_model, make_optimizer, name):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"{name}.*a function that makes"):
        sb.scorers.Proxy(make_model, make_optimizer)


def test_what_stands_for_it_in_a_saved_state_is_the_same_in_every_process():
    found = repr(sb.scorers.Proxy(Small, momentum))
    assert found == f"Proxy(model=Small, optimizer=momentum, forward={sb.scorers.Forward()!r})"
