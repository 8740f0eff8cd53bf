"""A schedule made for `len(loader)` steps an epoch would end early, which is said once."""

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from fixture_doors import fixture_data
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

import selective_backprop as sb


def door(strategy: sb.Strategy | None = None) -> sb.SelectiveLoader:
    """A loader of 15 batches, and of 5 from the second epoch on."""
    loader = DataLoader(fixture_data(60), 4)
    strategy = sb.selective_backprop(1 / 3) if strategy is None else strategy
    return sb.SelectiveLoader(loader, nn.Linear(2, 2), nn.CrossEntropyLoss(), strategy)


def warned(loader: Iterable[Any], epochs: int = 3) -> list[tuple[int, str]]:
    """The epochs, from 1, at whose end something is warned of, and what."""
    found = []
    for epoch in range(1, epochs + 1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in loader:
                assert not caught
        found += [(epoch, str(each.message)) for each in caught]
    return found


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)


class Bar:
    """A progress bar, which asks for the length whenever it begins."""

    def __init__(self, loader: sb.SelectiveLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        assert len(self.loader) in (5, 15)
        return iter(self.loader)


@pytest.mark.parametrize("wrap", [lambda loader: loader, Bar])
def test_a_schedule_made_for_len_is_warned_of_once_at_the_end_of_the_first_short_epoch(wrap):
    loader = door()
    OneCycleLR(optimizer(), 0.1, epochs=3, steps_per_epoch=len(loader))
    [(epoch, message)] = warned(wrap(loader))
    assert epoch == 2
    for part in ("15", "epoch 2", "5", "sb.CandidateScheduler(scheduler, loader)"):
        assert part in message


def test_it_is_said_of_losses_that_are_remembered_too():
    loader = DataLoader(fixture_data(60), 4)
    options = {"with_selection": True}
    loader = sb.SelectiveLoader(loader, None, None, sb.recorded_sb(1 / 3), **options)
    assert len(loader) == 15
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for (inputs, _), selection in loader:
                loader.record(selection, inputs[:, 0].abs())
    assert "was 15" in str(caught[0].message)


def test_a_schedule_that_is_wrapped_is_not_warned_of():
    loader = door()
    schedule = OneCycleLR(optimizer(), 0.1, total_steps=3 * len(loader))
    sb.CandidateScheduler(schedule, loader)
    assert not warned(loader)


def test_a_length_that_is_asked_for_in_each_epoch_is_not_warned_of():
    assert not warned(Bar(door()))
    loader = door()
    for _ in range(20):  # so often that Python makes the call in a way of its own
        steps = len(loader)
        assert not warned(loader, epochs=1)
    assert steps == 5


def test_a_length_that_is_asked_for_once_training_has_begun_is_not_warned_of():
    loader = door()
    batches = iter(loader)
    assert len(loader) == 15
    assert len(list(batches)) == 15
    assert len(list(loader)) == 5  # list() asks for the length of what it lists
    assert not warned(loader)


def test_epochs_that_are_as_long_as_was_said_are_not_warned_of():
    whole = door(sb.traditional())
    assert len(whole) == 15
    assert not warned(whole)
    some = door(sb.random_backprop(4 / 7))  # leftovers make up one more batch now and then
    assert len(some) == 8
    assert not warned(some)
    every = door()
    assert every.total_steps(3) == 25
    assert not warned(every)


def test_an_epoch_that_was_broken_off_is_not_warned_of():
    loader = door(sb.traditional())
    assert len(loader) == 15
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in loader:
            break
    assert not warned(loader)
