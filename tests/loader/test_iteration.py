"""Epochs are numbered and drawn by their own seeds, one at a time, by one thread."""

import copy
import gc
import multiprocessing
import threading
import weakref
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, bits, flat, numbers, select, selective
from fixture_training import Training
from torch.utils.data import DataLoader

import selective_backprop as sb


class Telling:
    """Notes which epoch it is told, as a distributed sampler would."""

    def __init__(self, items: Any) -> None:
        self.items = items
        self.told: list[int] = []

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Any:
        return iter(self.items)

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index)]), index

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)


def test_set_epoch_reaches_sampler_batch_sampler_and_data_set_once_each():
    data, sampler, batches = Telling(range(8)), Telling(range(8)), Telling([[0, 1], [2, 3]])
    loader = select(DataLoader(data, 4, sampler=sampler), selective())
    loader.set_epoch(5)
    assert (data.told, sampler.told) == ([5], [5])
    assert list(loader)
    assert loader.stats.epoch == 5
    batches.sampler = Telling([])
    select(DataLoader(data, batch_sampler=batches), sb.traditional()).set_epoch(7)
    assert (data.told, batches.told, batches.sampler.told) == ([5, 7], [7], [7])


def test_epochs_count_from_their_first_batch_broken_off_or_not():
    loader = select(DataLoader(Numbered(32), 4), selective())
    assert loader.stats.epoch == -1
    iter(loader)
    for expected in range(3):
        for _ in loader:
            assert loader.stats.epoch == expected
            break
    assert list(loader)
    assert loader.stats.epoch == 3


@pytest.mark.parametrize("strategy", [sb.random_backprop(1 / 2), selective()])
def test_an_epoch_draws_by_its_number_and_the_seed_alone(strategy):
    def epochs(seed: int, *order: int) -> list[list[list[int]]]:
        generator = torch.Generator().manual_seed(seed)
        loader = DataLoader(Numbered(64), 4)
        selecting = select(loader, strategy, generator=generator, leftovers="drop")
        state = generator.get_state()
        run = []
        for number in order:
            selecting.set_epoch(number)
            run.append(numbers(selecting))
        assert torch.equal(generator.get_state(), state)
        return run

    zero, one = epochs(1, 0, 1)
    assert zero != one
    assert epochs(2, 0)[0] != zero
    if strategy.scorer is None:  # else the history tells the order
        assert epochs(1, 1, 0, 0) == [one, zero, zero]


def test_the_seed_is_torchs_initial_seed_unless_a_generator_is_given():
    def chosen(seed: int) -> list[list[int]]:
        torch.manual_seed(seed)
        loader = select(DataLoader(Numbered(64), 4), sb.random_backprop(1 / 2), generator=None)
        torch.rand(3)  # how far the stream has moved does not matter
        return numbers(loader)

    assert chosen(1) == chosen(1) != chosen(2)


BOTH = pytest.mark.parametrize("strategy", [sb.random_backprop(1 / 2), selective()])


def test_nothing_happens_before_the_first_batch_is_asked_for():
    others = multiprocessing.active_children()  # of a scorer that an earlier test left behind
    loader = select(DataLoader(Numbered(16), 4, shuffle=True, num_workers=2), selective())
    state = torch.get_rng_state()
    passes = [iter(loader), iter(loader)]
    assert torch.equal(torch.get_rng_state(), state)
    assert set(multiprocessing.active_children()) <= set(others)
    assert loader.stats.epoch == -1
    assert len(next(passes[1])[1]) == 4
    assert not torch.equal(torch.get_rng_state(), state)
    assert loader.stats.epoch == 0


@BOTH
def test_of_two_passes_the_older_one_is_refused(strategy):
    loader = select(DataLoader(Numbered(32), 4), strategy)
    older, newer = iter(loader), iter(loader)
    first = next(older)
    second = next(newer)
    with pytest.raises(sb.LoaderError, match="another iteration"):
        next(older)
    rest = list(newer)
    assert loader.stats.kept == len(first[1]) + len(second[1]) + len(flat(numbers(rest)))
    assert loader.stats.epoch == 1


def test_a_pass_that_came_to_its_end_stays_at_its_end():
    loader = select(DataLoader(Numbered(16), 4), selective())
    older = iter(loader)
    list(older)
    newer = iter(loader)
    next(newer)
    assert next(older, "the end") == "the end"
    assert len(list(newer)) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_inside_can_be_iterated_beside_it(workers):
    loader = DataLoader(Numbered(24), 2, num_workers=workers, persistent_workers=bool(workers))
    own = iter(loader)
    first = next(own)
    for ours in select(loader, sb.traditional()):
        assert len(ours[1]) == 2
    assert [first[1].tolist(), *numbers(own)] == [[i, i + 1] for i in range(0, 24, 2)]


def in_a_thread(task: Any) -> Any:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(task())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


SCORE = {
    "selective": selective(),
    "warm-up": sb.selective_backprop(1 / 2),
    "stale": sb.stale_sb(1 / 2),
    "rescored": sb.kakurenbo(),
}


def test_a_thread_may_read_ahead_where_nothing_is_scored():
    ours, theirs = (select(DataLoader(Numbered(32), 4), sb.traditional()) for _ in range(2))
    for _ in range(2):
        assert numbers(in_a_thread(lambda: list(ours))) == numbers(theirs)


@pytest.mark.parametrize("strategy", SCORE.values(), ids=SCORE)
def test_a_thread_that_reads_ahead_is_refused_at_once_where_something_is_scored(strategy):
    training = Training(strategy)
    stream = torch.get_rng_state()
    error = in_a_thread(lambda: next(iter(training.loader)))
    assert isinstance(error, sb.LoaderError)
    assert "num_workers=" in str(error)
    assert "the thread that built the loader" in str(error)
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(module.training for module in training.model.modules())
    assert len(training.epoch()) > 0  # the thread that trains goes on
    assert len(in_a_thread(lambda: list(Training(strategy).loader))) > 0  # as may any one thread


def test_a_second_thread_is_refused_and_the_first_goes_on():
    batches = iter(select(DataLoader(Numbered(32), 4), sb.random_backprop(1 / 2)))
    next(batches)
    error = in_a_thread(lambda: next(batches))
    assert isinstance(error, sb.LoaderError)
    assert "second thread" in str(error)
    assert len(list(batches)) == 3


class Watched(DataLoader):
    """Notes the iterators it makes, without keeping them."""

    made: weakref.WeakSet[Any]

    def __iter__(self) -> Any:
        iterator = super().__iter__()
        self.made.add(iterator)
        return iterator


@BOTH
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_breaks_off_frees_its_iterator_and_workers_at_once(strategy, workers):
    others = len(multiprocessing.active_children())  # ranks that other tests share
    loader = Watched(Numbered(64), 4, num_workers=workers)
    loader.made = weakref.WeakSet()
    selecting = select(loader, strategy)
    gc.disable()
    try:
        for _ in selecting:
            assert len(loader.made) == 1
            assert len(multiprocessing.active_children()) == others + workers
            break
        assert len(loader.made) == 0
        assert len(multiprocessing.active_children()) == others
    finally:
        gc.enable()


@pytest.mark.parametrize("strategy", [sb.random_backprop(1 / 2), selective(start=0.1)])
def test_nothing_but_the_user_keeps_it_alive(strategy):
    # A circle would leave its workers running until the garbage collector comes by.
    loader = select(DataLoader(Numbered(16), 4), strategy, epochs=2)
    list(loader)
    len(loader)
    gone = weakref.ref(loader)
    del loader
    assert gone() is None


@pytest.mark.parametrize("strategy", [selective(), sb.stale_sb(1 / 2)], ids=lambda each: each.name)
def test_a_copy_that_is_made_in_the_middle_of_an_epoch_leaves_this_epoch_running(strategy):
    loader = select(DataLoader(Numbered(24), 4), strategy)
    list(loader)
    batches = iter(loader)
    next(batches)
    twin = copy.deepcopy(loader)
    assert bits(twin.state_dict()) == bits(loader.state_dict())
    assert twin.next_epoch == 2
    assert list(twin)
    assert numbers(batches)
    assert (loader.stats.epoch, twin.stats.epoch) == (1, 2)
