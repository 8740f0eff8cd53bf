"""A schedule that counts steps runs its whole course, however few batches selection yields."""

import pytest
from fixture_loaders import Numbered, NumberedStream, select
from fixture_training import Training
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader
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
BATCHES = 32  # of the data loader, in each epoch
STEPS = EPOCHS * BATCHES


def make(strategy, **options):
    return Training(strategy, examples=16 * BATCHES, loads=16, **options)


@pytest.mark.parametrize(
    ("name", "workers"), [*((name, 0) for name in STRATEGIES), ("auto", 1), ("coins", 1)]
)
def test_one_cycle_comes_to_its_end(name, workers):
    loop = make(STRATEGIES[name], workers=workers)
    inner = OneCycleLR(loop.optimizer, 0.3, total_steps=STEPS)
    scheduler = sb.CandidateScheduler(inner, loop.loader)
    for number in range(1, EPOCHS + 1):
        loop.epoch(after=scheduler.step)
        # What comes after an epoch's last training batch is caught up on with the next one.
        assert 0 <= number * BATCHES - inner.last_epoch <= 8
    assert inner.get_last_lr()[0] < 0.01
    if name != "traditional":
        assert loop.loader.stats.batches < 0.8 * STEPS


def test_without_selection_every_rate_is_that_of_the_plain_loop():
    loop, twin = make(sb.traditional()), make(sb.traditional())
    inner = CosineAnnealingLR(loop.optimizer, T_max=STEPS)
    plain = CosineAnnealingLR(twin.optimizer, T_max=STEPS)
    scheduler = sb.CandidateScheduler(inner, loop.loader)
    for _ in loop.loader:
        loop.optimizer.step()
        scheduler.step()
        twin.optimizer.step()
        plain.step()
        assert inner.get_last_lr() == plain.get_last_lr()


def test_beyond_its_end_the_rate_stays_and_a_warning_says_so_once():
    loader = select(DataLoader(Numbered(512), 16), sb.random_backprop(1 / 2))
    inner = OneCycleLR(make(sb.traditional()).optimizer, 0.3, total_steps=20)
    scheduler = sb.CandidateScheduler(inner, loader)
    inner.optimizer.step()
    with pytest.warns(sb.SelectionWarning, match="made for 20 steps") as caught:
        steps = [scheduler.step() for _ in loader]
    assert len(caught) == 1 < len(steps)
    assert inner.last_epoch == 20 - 1 or inner.last_epoch == 20


def test_what_cannot_be_right_is_refused_when_it_is_made():
    loop = make(sb.auto())
    for steps in (77, STEPS // 4):
        short = OneCycleLR(loop.optimizer, 0.3, total_steps=steps)
        message = f"{steps} steps.* {STEPS} steps: .*, or accumulation="
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
    loop = make(sb.random_backprop(1 / 2))
    inner = OneCycleLR(loop.optimizer, 0.3, total_steps=STEPS // 4)
    scheduler = sb.CandidateScheduler(inner, loop.loader, accumulation=4)
    for _ in range(EPOCHS):
        loop.epoch(after=scheduler.step)
    assert STEPS // 4 - 1 <= inner.last_epoch <= STEPS // 4
    whole = OneCycleLR(loop.optimizer, 0.3, total_steps=STEPS)
    with pytest.raises(sb.ConfigurationError, match=f"make {STEPS // 4} steps:"):
        sb.CandidateScheduler(whole, loop.loader, accumulation=4)
