"""A saved loader goes on where it stood, and only in a loader that was built alike."""

from typing import Any

import pytest
from fixture_loaders import Numbered, same_tensors, select, selective
from fixture_training import STRATEGIES, Training
from torch.utils.data import DataLoader

import selective_backprop as sb


@pytest.mark.parametrize("stop", [None, 2], ids=["at an epoch's end", "after giving up the rest"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(name, stop):
    whole = Training(STRATEGIES[name])
    whole.epoch()
    whole.epoch(stop)
    whole.loader.set_epoch(2)
    saved = whole.save()
    resumed = Training(STRATEGIES[name], seed=2)  # the seed is part of what is saved
    resumed.epoch(1)
    resumed.load(saved)
    assert resumed.loader.stats == whole.loader.stats
    assert resumed.loader.progress == whole.loader.progress
    rest = [whole.epoch() for _ in range(2)]
    stats = whole.loader.stats
    weights = {name: tensor.clone() for name, tensor in whole.model.state_dict().items()}
    resumed.load(saved)
    assert [resumed.epoch() for _ in range(2)] == rest
    assert resumed.loader.stats == stats
    assert same_tensors(resumed.model.state_dict(), weights)


@pytest.mark.parametrize("name", ["random", "selective"])
def test_what_workers_prefetched_is_not_part_of_the_state(name):
    states = []
    for workers in (0, 2):
        training = Training(STRATEGIES[name], workers=workers)
        training.epoch()
        for _ in training.loader:
            # how far the order was drawn is noted beside how the epoch began
            states.append(training.loader.state_dict() | {"mid_epoch": None})
            break
    assert repr(states[0]) == repr(states[1])


def test_loading_ends_the_pass_that_runs():
    training = Training(selective(1 / 2))
    saved = training.save()
    batches = iter(training.loader)
    next(batches)
    training.load(saved)
    with pytest.raises(sb.LoaderError, match="another iteration"):
        next(batches)
    assert training.loader.stats == sb.Stats()


def test_a_state_is_not_changed_by_what_follows():
    training = Training(selective(1 / 2))
    training.epoch()
    state = training.loader.state_dict()
    before = repr(state)
    training.epoch()
    assert repr(state) == before


def built(examples: int = 40, strategy: sb.Strategy | None = None, **options: Any) -> Any:
    return select(DataLoader(Numbered(examples), 6), strategy or selective(), **options)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (lambda: built(strategy=selective(1 / 3)), r"strategy=Strategy\(.*beta=1\.0.*beta=2"),
        (lambda: built(batch_size=4), "batch_size=6.*batch_size=4"),
        (lambda: built(examples=50), "examples=40.*examples=50"),
        (
            lambda: select(DataLoader(Numbered(40), 6, drop_last=True), selective()),
            "drop_last=False.*drop_last=True",
        ),
    ],
)
def test_a_state_of_another_loader_is_refused_with_the_difference_and_changes_nothing(
    other, difference
):
    loader = other()
    list(loader)
    before = repr(loader.state_dict())
    with pytest.raises(sb.ConfigurationError, match=difference):
        loader.load_state_dict(built().state_dict())
    assert repr(loader.state_dict()) == before


def test_a_state_of_another_version_is_refused():
    loader = built()
    with pytest.raises(sb.ConfigurationError, match="version 0"):
        loader.load_state_dict(loader.state_dict() | {"version": 0})
