"""One pass at a time, by one thread, which holds nothing longer than the loop does."""

import gc
import multiprocessing
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from fixture_loaders import (
    NotedSampler,
    Numbered,
    fixture_data,
    flat,
    fresh_net,
    numbers,
    same_tensors,
    select,
    selective,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb

BOTH = pytest.mark.parametrize("strategy", [sb.random_backprop(1 / 2), selective()])


def test_nothing_happens_before_the_first_batch_is_asked_for():
    others = multiprocessing.active_children()  # of a scorer that an earlier test left behind
    data = Numbered(16)
    loader = DataLoader(data, 4, shuffle=True, num_workers=2)
    selecting = select(loader, selective())
    torch.manual_seed(0)
    state = torch.get_rng_state()
    passes = [iter(selecting), iter(selecting)]
    assert torch.equal(torch.get_rng_state(), state)
    assert set(multiprocessing.active_children()) <= set(others)
    assert selecting.stats.epoch == -1
    assert len(next(passes[1])[1]) == 4
    assert not torch.equal(torch.get_rng_state(), state)
    assert selecting.stats.epoch == 0


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


def test_the_loader_inside_can_be_iterated_beside_it():
    loader = DataLoader(Numbered(8), 2)
    selecting = select(loader, sb.traditional())
    assert [
        (one[1].tolist(), other[1].tolist()) for one, other in zip(selecting, loader, strict=True)
    ] == [([i, i + 1], [i, i + 1]) for i in range(0, 8, 2)]


def test_a_loader_that_is_being_iterated_by_persistent_workers_goes_on():
    loader = DataLoader(Numbered(24), 2, num_workers=1, persistent_workers=True)
    own = iter(loader)
    first = next(own)
    assert len(numbers(select(loader, sb.traditional()))) == 12
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


NEVER_SCORE = {
    "traditional": sb.traditional(),
    "random-backprop": sb.random_backprop(1 / 2),
    "recorded-sb": sb.recorded_sb(1 / 2),
    "auto": sb.auto(),
}
SCORE = {
    "selective-backprop": selective(),
    "after a warm-up": sb.selective_backprop(1 / 2, warmup_epochs=1),
    "stale-sb": sb.stale_sb(1 / 2),
    "kath18": sb.kath18(),
    "kakurenbo": sb.kakurenbo(),
    "proxy": sb.proxy_sb(
        fresh_net, lambda parameters: torch.optim.SGD(parameters, 0.1), rate=1 / 2
    ),
}


def wrapped(strategy: sb.Strategy) -> tuple[nn.Module, sb.SelectiveLoader]:
    model = fresh_net()
    loader = sb.SelectiveLoader(
        DataLoader(fixture_data(), 5, sampler=NotedSampler(40)),
        model,
        nn.CrossEntropyLoss(),
        strategy,
        epochs=3,
        generator=torch.Generator().manual_seed(1),
        with_selection=True,
        quiet=True,
    )
    return model, loader


def trained(strategy: sb.Strategy, read: Callable[[Any], Iterable[Any]]) -> dict[str, Tensor]:
    """The weights after three epochs of batches that are read in some manner."""
    model, loader = wrapped(strategy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    for _ in range(3):
        for (inputs, targets), selection in read(loader):
            losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
            loader.record(selection, losses)
            optimizer.zero_grad()
            (selection.weights * losses).mean().backward()
            optimizer.step()
    return model.state_dict()


def ahead(loader: Iterable[Any]) -> Iterator[Any]:
    """Read an epoch in a thread of its own, up to three batches ahead."""
    found: queue.Queue[Any] = queue.Queue(2)

    def read() -> None:
        for batch in loader:
            found.put(batch)
        found.put(None)

    thread = threading.Thread(target=read)
    thread.start()
    yield from iter(found.get, None)
    thread.join()


@pytest.mark.parametrize("strategy", NEVER_SCORE.values(), ids=NEVER_SCORE)
def test_a_thread_may_read_ahead_where_nothing_is_scored(strategy):
    assert same_tensors(trained(strategy, ahead), trained(strategy, iter))


@pytest.mark.parametrize("strategy", SCORE.values(), ids=SCORE)
def test_a_thread_that_reads_ahead_is_refused_at_once_where_something_is_scored(strategy):
    model, loader = wrapped(strategy)
    loader.loss_fn  # noqa: B018
    stream = torch.get_rng_state()
    error = in_a_thread(lambda: next(iter(loader)))
    assert isinstance(error, sb.LoaderError)
    assert "num_workers=" in str(error)
    assert "build the SelectiveLoader" in str(error)
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(module.training for module in model.modules())
    assert len(list(loader)) > 0  # the thread that trains goes on


def test_training_may_take_place_in_any_one_thread():
    assert len(in_a_thread(lambda: list(wrapped(selective())[1]))) > 0


def test_a_second_thread_is_refused_and_the_first_goes_on():
    batches = iter(select(DataLoader(Numbered(32), 4), sb.random_backprop(1 / 2)))
    next(batches)
    error = in_a_thread(lambda: next(batches))
    assert isinstance(error, sb.LoaderError)
    assert "second thread" in str(error)
    assert len(list(batches)) == 3


def test_where_nothing_is_scored_the_thread_that_asks_first_is_the_one():
    batches = iter(select(DataLoader(Numbered(32), 4), sb.random_backprop(1 / 2)))
    assert len(in_a_thread(lambda: next(batches))[1]) == 4
    with pytest.raises(sb.LoaderError, match="second thread"):
        next(batches)


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
