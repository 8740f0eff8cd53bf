"""What a loader has and counts: a framework's attributes, statistics, the stopwatch."""

import copy
import dataclasses
import pickle

import pytest
from fixture_loaders import Numbered, numbers, select, selective
from torch.utils.data import DataLoader

import selective_backprop as sb


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


def test_stats_are_a_frozen_snapshot():
    loader = select(DataLoader(Numbered(22), 4), selective(), leftovers="drop")
    before = loader.stats
    list(loader)
    assert before == sb.Stats()
    assert loader.stats == sb.Stats(
        epoch=0, candidates=22, loaded=22, scored=22, kept=8, batches=2, dropped=6
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.kept = 1


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
