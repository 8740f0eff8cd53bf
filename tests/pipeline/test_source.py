"""Loaders seen from outside: what can be wrapped, and what cannot and why."""

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, NumberedStream, numbers, select, selective
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop._pipeline.source import open_source


@pytest.mark.parametrize(
    "thing",
    [[1, 2, 3], iter([]), NumberedStream(4), None, "loader"],
    ids=lambda thing: str(type(thing)),
)
def test_what_is_no_data_loader_is_refused_with_how_to_make_it_one(thing):
    with unhooked(), pytest.raises(sb.LoaderError, match=r"DataLoader.* got"):
        select(thing, sb.traditional())


def test_a_wrapped_loader_is_not_wrapped_again():
    loader = select(DataLoader(Numbered(8), 4), selective())
    with unhooked(), pytest.raises(sb.LoaderError, match="is a SelectiveLoader"):
        select(loader, selective())


def test_a_loader_prepared_by_accelerate_is_refused_by_name(monkeypatch):
    module = types.ModuleType("accelerate.data_loader")
    exec("class DataLoaderShard(Loader): pass", {"Loader": DataLoader}, vars(module))
    module.DataLoaderShard.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(sb.LoaderError, match=r"Accelerate \(DataLoaderShard\)"):
        select(module.DataLoaderShard(Numbered(8), 4), selective())


class Sized(NumberedStream):
    def __len__(self) -> int:
        return self.examples


@pytest.mark.parametrize(
    "empty",
    [
        DataLoader(Numbered(0), 4),
        DataLoader(Numbered(3), 4, drop_last=True),
        DataLoader(Numbered(3), batch_sampler=[]),
        DataLoader(Sized(0), 4),
    ],
    ids=["no data", "drop_last", "no batches", "sized stream"],
)
@pytest.mark.parametrize("strategy", [sb.traditional(), selective()])
def test_an_empty_loader_is_refused(empty, strategy):
    with pytest.raises(sb.LoaderError, match="empty"):
        select(empty, strategy, batch_size=4)


@pytest.mark.parametrize("strategy", [sb.traditional(), selective()])
def test_a_stream_that_turns_out_to_be_empty_is_refused_at_its_end(strategy):
    with pytest.raises(sb.LoaderError, match="yielded nothing"):
        list(select(DataLoader(NumberedStream(0), 4), strategy))


class OwnWay(DataLoader):
    """Iterates without looking at its batch sampler."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self.dataset)):
            yield self.collate_fn([self.dataset[index]])


@pytest.mark.parametrize("strategy", [sb.traditional(), sb.random_backprop(1 / 2), selective()])
def test_a_loader_that_does_not_draw_from_its_batch_sampler_is_refused_at_once(strategy):
    loader = select(OwnWay(Numbered(8), 4), strategy)
    with pytest.raises(sb.LoaderError, match=r"\(OwnWay\)"):
        next(iter(loader))


class Secretive(Sampler[int]):
    """Does not say how many indices it has, in one of the two customary ways."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __iter__(self) -> Iterator[int]:
        return iter(range(24))

    def __len__(self) -> int:
        raise self.error


@pytest.mark.parametrize("error", [TypeError, NotImplementedError])
@pytest.mark.parametrize("strategy", [sb.random_backprop(1 / 2), selective()])
def test_a_sampler_of_unknown_length_works_and_has_no_length(error, strategy):
    loader = select(DataLoader(Numbered(24), 4, sampler=Secretive(error)), strategy)
    with pytest.raises(TypeError):
        len(loader)
    assert [len(batch) for batch in numbers(loader)] == [4] * 3
    assert loader.progress is None


def test_what_is_known_of_a_loader():
    plain = open_source(DataLoader(Numbered(10), 4))
    assert (plain.batch_size, plain.examples, plain.batches) == (4, 10, 3)
    assert list(plain.sizes()) == [4, 4, 2]
    dropping = open_source(DataLoader(Numbered(10), 4, drop_last=True))
    assert list(dropping.sizes()) == [4, 4]
    listed = open_source(
        DataLoader(Numbered(10), None, sampler=BatchSampler(NotedSampler(9), 4, False))
    )
    assert (listed.attribute, listed.batch_size, list(listed.sizes())) == ("sampler", 4, [4, 4, 1])
    uneven = open_source(DataLoader(Numbered(10), batch_sampler=[[1], [2, 3]]))
    assert (uneven.batch_size, uneven.batches, uneven.sizes()) == (None, 2, None)
    stream = open_source(DataLoader(NumberedStream(10), 4))
    assert (stream.indexed, stream.examples, stream.batches) == (False, None, None)


def test_the_generator_and_workers_of_the_loader_are_its_own():
    generator = torch.Generator().manual_seed(4)
    loader = DataLoader(Numbered(10), 4, shuffle=True, generator=generator, num_workers=0)
    clone = open_source(loader).copy_with([[1, 2]])
    assert clone.generator is generator
    assert clone.batch_sampler == [[1, 2]]
    assert loader.batch_sampler != [[1, 2]]
    assert isinstance(loader.dataset, Numbered)
    assert not isinstance(loader.dataset, IterableDataset)
