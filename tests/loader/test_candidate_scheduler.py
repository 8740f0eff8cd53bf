"""A schedule that counts steps runs its whole course, however few batches selection yields."""

import pytest
import torch
from fixture_loaders import Numbered, NumberedStream
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)
from torch.utils.data import DataLoader, TensorDataset
from unhooked import unhooked

import selective_backprop as sb

EPOCHS = 5
STRATEGIES = {
    "auto": sb.auto(),
    "selective": sb.selective_backprop(1 / 3),
    "coins": sb.selective_backprop(1 / 3, draw="bernoulli"),
    "traditional": sb.traditional(),
    "random": sb.random_backprop(1 / 4),
}


class Loop:
    """A training on two classes that are easily told apart."""

    def __init__(self, strategy, workers=0, **options):
        torch.manual_seed(0)
        inputs = torch.randn(500, 4)
        data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.3)
        self.train_loader = DataLoader(data, 16, shuffle=True, num_workers=workers)
        loss_fn = nn.CrossEntropyLoss()
        self.loader = sb.SelectiveLoader(
            self.train_loader, self.model, loss_fn, strategy, quiet=True, **options
        )
        self.loss_fn = self.loader.loss_fn
        self.steps = EPOCHS * len(self.train_loader)

    def epoch(self, scheduler):
        for inputs, targets in self.loader:
            self.optimizer.zero_grad()
            self.loss_fn(self.model(inputs), targets).backward()
            self.optimizer.step()
            scheduler.step()


@pytest.mark.parametrize(
    ("name", "workers"), [*((name, 0) for name in STRATEGIES), ("auto", 1), ("coins", 1)]
)
def test_one_cycle_comes_to_its_end(name, workers):
    loop = Loop(STRATEGIES[name], workers)
    inner = OneCycleLR(loop.optimizer, 0.3, total_steps=loop.steps)
    scheduler = sb.CandidateScheduler(inner, loop.loader)
    for number in range(1, EPOCHS + 1):
        loop.epoch(scheduler)
        # What comes after an epoch's last training batch is caught up on with the next one.
        behind = number * len(loop.train_loader) - inner.last_epoch
        assert 0 <= behind <= 8
    assert inner.get_last_lr()[0] < 0.01
    if name != "traditional":
        assert loop.loader.stats.batches < 0.8 * loop.steps


def test_without_selection_every_rate_is_that_of_the_plain_loop():
    loop = Loop(sb.traditional())
    inner = CosineAnnealingLR(loop.optimizer, T_max=loop.steps)
    twin = CosineAnnealingLR(
        torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3), T_max=loop.steps
    )
    scheduler = sb.CandidateScheduler(inner, loop.loader)
    for _ in loop.loader:
        loop.optimizer.step()
        scheduler.step()
        twin.optimizer.step()
        twin.step()
        assert inner.get_last_lr() == twin.get_last_lr()


def test_beyond_its_end_the_rate_stays_and_a_warning_says_so_once():
    loop = Loop(sb.random_backprop(1 / 2))
    inner = OneCycleLR(loop.optimizer, 0.3, total_steps=20)  # an epoch has 32
    scheduler = sb.CandidateScheduler(inner, loop.loader)
    with pytest.warns(sb.SelectionWarning, match="made for 20 steps") as caught:
        loop.epoch(scheduler)
    assert len(caught) == 1
    assert inner.last_epoch == 20 - 1 or inner.last_epoch == 20


def test_what_cannot_be_right_is_refused_when_it_is_made():
    loop = Loop(sb.auto(), epochs=EPOCHS)
    for steps, change in ((77, "correct epochs="), (loop.steps // 4, "pass accumulation=4")):
        short = OneCycleLR(loop.optimizer, 0.3, total_steps=steps)
        message = f"{steps} steps.* {loop.steps} steps: .* {loop.steps} steps, or {change}$"
        with pytest.raises(sb.ConfigurationError, match=message):
            sb.CandidateScheduler(short, loop.loader)
    with pytest.raises(sb.ConfigurationError, match="ReduceLROnPlateau"):
        sb.CandidateScheduler(ReduceLROnPlateau(loop.optimizer), loop.loader)
    with unhooked(), pytest.raises(sb.ConfigurationError, match="a DataLoader: pass the Selective"):
        sb.CandidateScheduler(short, DataLoader(Numbered(8), 4))
    stream = sb.SelectiveLoader(
        DataLoader(NumberedStream(10), 4), loop.model, nn.CrossEntropyLoss(), sb.traditional()
    )
    with pytest.raises(sb.ConfigurationError, match="no length"):
        sb.CandidateScheduler(StepLR(loop.optimizer, 3), stream)


def test_an_epoch_that_was_set_counts_the_ones_before():
    loader = sb.SelectiveLoader(DataLoader(Numbered(40), 4), None, None, sb.random_backprop(1 / 2))
    loader.set_epoch(3)
    next(iter(loader))
    assert 30 < loader.candidate_batches <= 40


def test_steps_of_several_batches_are_counted_as_such():
    loop = Loop(sb.random_backprop(1 / 2), epochs=EPOCHS)
    inner = OneCycleLR(loop.optimizer, 0.3, total_steps=loop.steps // 4)
    scheduler = sb.CandidateScheduler(inner, loop.loader, accumulation=4)
    for _ in range(EPOCHS):
        loop.epoch(scheduler)
    assert loop.steps // 4 - 1 <= inner.last_epoch <= loop.steps // 4
    whole = OneCycleLR(loop.optimizer, 0.3, total_steps=loop.steps)
    with pytest.raises(sb.ConfigurationError, match=f"make {loop.steps // 4} steps:.*=1$"):
        sb.CandidateScheduler(whole, loop.loader, accumulation=4)
