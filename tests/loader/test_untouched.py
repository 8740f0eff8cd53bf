"""What the user brought stays as it was, and what a loader has and counts."""

import copy
import pickle
import random
from typing import Any

import fixture_loaders
import pytest
import torch
from fixture_loaders import Numbered, fixture_data, numbers, select, selective, streams
from torch import Tensor, nn
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb

STRATEGIES = [
    sb.traditional(),
    sb.random_backprop(1 / 2),
    selective(),
    selective(draw="bernoulli", warmup_epochs=1),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_is_not_changed(strategy, workers):
    loader = DataLoader(
        Numbered(24), 4, shuffle=True, num_workers=workers, persistent_workers=bool(workers)
    )
    before, sampler = dict(vars(loader)), dict(vars(loader.sampler))
    selecting = select(loader, strategy, epochs=3)
    selecting.set_epoch(0)
    for stop in (2, None):
        for number, _ in enumerate(selecting, start=1):
            if number == stop:
                break
    assert selecting.stats.batches > 2
    assert vars(loader) == before
    assert vars(loader.sampler) == sampler
    assert len(list(loader)) == 6


def test_the_loader_of_a_stream_does_not_remember_that_its_length_was_asked_for():
    class Sized(fixture_loaders.NumberedStream):
        def __len__(self) -> int:
            return 4  # and it yields more, which torch warns about where it remembers

    loader = DataLoader(Sized(12), 4)
    before = dict(vars(loader))
    assert len(list(select(loader, selective(), batch_size=2))) == 3
    assert vars(loader) == before


@pytest.mark.parametrize("size", [3, 4])
def test_what_the_loop_does_to_its_batch_reaches_nothing_that_waits(size):
    def handed_out(spoil: bool) -> list[list[int]]:
        run = []
        loader = select(DataLoader(Numbered(40), 10), selective(), batch_size=size)
        for inputs, targets in loader:
            run.append([targets.tolist(), inputs.tolist()])
            if spoil:
                inputs.zero_()
                targets.fill_(-1)
        return run

    assert handed_out(spoil=True) == handed_out(spoil=False)


class Draws(fixture_loaders.Net):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * random.random()


@pytest.mark.parametrize("rate", [1 / 2, 1.0])
def test_selecting_moves_no_global_stream_beyond_what_the_loader_does(rate):
    def moved(strategy: sb.Strategy | None) -> tuple[Any, ...]:
        torch.manual_seed(3)
        random.seed(3)
        model = Draws()
        loader = DataLoader(fixture_data(40), batch_size=10, shuffle=True)
        if strategy is not None:
            loader = sb.SelectiveLoader(loader, model, nn.CrossEntropyLoss(), strategy)
        for _ in range(2):
            list(loader)
        return streams()

    with unhooked():  # the annotation checks draw from Python's stream
        expected = moved(None)
        assert moved(selective(rate)) == expected
        assert moved(selective(rate, draw="bernoulli")) == expected
        assert moved(sb.random_backprop(rate)) == expected


def test_it_has_what_frameworks_look_for_and_is_no_data_loader():
    loader, strategy = DataLoader(Numbered(16), 4), selective()
    ours = select(loader, strategy, batch_size=2)
    assert (ours.dataset, ours.sampler) == (loader.dataset, loader.sampler)
    assert (ours.batch_size, ours.strategy) == (2, strategy)
    assert not isinstance(ours, DataLoader)
    assert not hasattr(ours, "batch_sampler")
    with pytest.raises(TypeError, match=r"SelectiveLoader .* load_state_dict"):
        pickle.dumps(ours)
    assert numbers(copy.deepcopy(ours)) == numbers(ours)


def test_the_stopwatch_is_charged_with_each_stage():
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 1.0
        return now

    watch = sb.Stopwatch(clock=tick)
    loader = select(DataLoader(Numbered(16), 4), selective(), stopwatch=watch)
    watch.start()
    list(loader)
    watch.stop()
    assert {"load", "score", "select", "other"} == set(watch.seconds)
    assert all(seconds > 0 for seconds in watch.seconds.values())


def test_a_loader_is_true_even_where_it_has_no_length():
    loader = select(DataLoader(Numbered(8), 4), selective(draw="bernoulli"))
    assert loader
    with pytest.raises(TypeError):
        len(loader)
