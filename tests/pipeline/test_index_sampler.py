"""Stage one: what is not selected is never loaded, however far ahead workers run."""

from collections.abc import Iterator
from typing import Any

import fixture_loaders
import numpy as np
import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, flat, numbers, select, selective
from fixture_training import STRATEGIES, Training, outcome
from torch.utils.data import BatchSampler, DataLoader, Dataset, default_collate

import selective_backprop as sb

HALF = sb.random_backprop(1 / 2)
WHOLE = ["sampler", "collate", "one go", "lists"]
CUT = ["drop_last", "ranges", "arrays", "tensors", "objects"]  # two examples are never drawn


def collate_reversed(examples: list[Any]) -> Any:
    return default_collate(examples[::-1])


class ByList(Numbered):
    """Fetched by a list of indices, as with `batch_size=None`."""

    def __getitem__(self, indices: Any) -> Any:
        return default_collate([super(ByList, self).__getitem__(index) for index in indices])


def sparing_loader(name: str, workers: int) -> DataLoader:
    """44 examples, in batches of 6 or so."""
    data = {"one go": fixture_loaders.NumberedInOneGo, "lists": ByList}.get(name, Numbered)(44)
    ranges = [range(i, i + 7) for i in range(0, 42, 7)]
    options: dict[str, Any] = {
        "sampler": {"batch_size": 6, "sampler": NotedSampler(44)},
        "drop_last": {"batch_size": 6, "drop_last": True},
        "collate": {"batch_size": 6, "collate_fn": collate_reversed},
        "one go": {"batch_size": 6, "shuffle": True},
        "lists": {"batch_size": None, "sampler": BatchSampler(range(44), 6, False)},
        "ranges": {"batch_sampler": ranges},
        "arrays": {"batch_sampler": [np.array(each) for each in ranges]},
        "tensors": {"batch_sampler": [torch.tensor(each).int() for each in ranges]},
        "objects": {"batch_sampler": [[np.int16(key) for key in each] for each in ranges]},
    }[name]
    return DataLoader(data, num_workers=workers, **options)


@pytest.mark.filterwarnings("ignore:random-backprop draws before loading")
@pytest.mark.parametrize(
    ("name", "workers"), [*((name, 0) for name in WHOLE + CUT), ("sampler", 2), ("lists", 2)]
)
def test_what_is_not_selected_is_never_loaded(name, workers):
    loader = sparing_loader(name, workers)
    selecting = select(loader, HALF, batch_size=6)
    trained = torch.zeros(44, dtype=torch.int64)
    for _ in range(2):
        batches = numbers(selecting)
        assert [len(batch) for batch in batches] == [6] * len(batches)
        trained += torch.bincount(torch.tensor(flat(batches)), minlength=44)
        assert torch.equal(loader.dataset.reads, trained)
    stats = selecting.stats
    assert stats.candidates == 2 * (44 if name in WHOLE else 42)
    assert stats.loaded == stats.kept == trained.sum() == stats.candidates // 12 * 6
    assert stats.scored == 0


def test_whole_candidate_batches_reach_the_data_set_as_the_batch_sampler_made_them():
    seen: list[Any] = []

    class Watching(Numbered):
        def __getitems__(self, indices: Any) -> list[Any]:
            seen.append(indices)
            return [self[index] for index in indices]

    made = [torch.tensor([0, 1, 2]), np.array([3, 4]), (5, 6)]
    loader = DataLoader(Watching(7), batch_sampler=made)
    assert numbers(select(loader, sb.traditional())) == [[0, 1, 2], [3, 4], [5, 6]]
    assert all(one is other for one, other in zip(seen, made, strict=True))


class Pairs:
    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0, 1], [2, 3]])

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    "strategy", [HALF, selective(), selective(draw="bernoulli"), sb.rho_loss(torch.zeros(4), 1 / 2)]
)
@pytest.mark.parametrize("size", [None, 2])
def test_a_batch_sampler_s_groups_that_would_be_mixed_are_warned_about(strategy, size):
    sampler = Pairs()
    if size:
        sampler.batch_size = size
    loader = DataLoader(Numbered(4), batch_sampler=sampler)
    with pytest.warns(sb.SelectionWarning, match=r"regroups .*\(Pairs\)"):
        select(loader, strategy, batch_size=2)


def test_groups_that_stay_apart_are_not_warned_about():
    class Fours(Pairs):
        batch_size = 4

        def __iter__(self) -> Iterator[list[int]]:
            return iter([[0, 2, 4, 6], [1, 3, 5, 7]])

    loader = DataLoader(Numbered(8), batch_sampler=Fours())
    for strategy in (selective(), sb.random_scored(1 / 2), sb.traditional()):
        for batch in numbers(select(loader, strategy, batch_size=2)):
            assert len({number % 2 for number in batch}) == 1
    with pytest.warns(sb.SelectionWarning, match=r" 3 examples .*regroups .*\(Fours\)"):
        select(loader, sb.traditional(), batch_size=3)
    with pytest.warns(sb.SelectionWarning, match=r" 6 examples .*regroups .*\(Fours\)"):
        select(loader, selective(), batch_size=3)
    select(DataLoader(Numbered(4), batch_sampler=Pairs()), sb.traditional())


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # by torchdata's loader
def test_batches_of_torchdata_s_own_sampler_are_no_groups():
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    for strategy in (HALF, selective()):
        select(stateful.StatefulDataLoader(Numbered(8), batch_size=2), strategy)


class ByName(Dataset):
    """Data looked up by something else than a number."""

    def __getitem__(self, key: Any) -> tuple[torch.Tensor, int]:
        number = int(key[1:]) if isinstance(key, str) else key[0] * 10 + key[1]
        return torch.tensor([float(number)]), number


PAIRS = [(i // 10, i % 10) for i in range(24)]


@pytest.mark.parametrize(
    "keys", [[f"n{i}" for i in range(24)], PAIRS, [(*pair, *pair[: pair[1] % 2]) for pair in PAIRS]]
)
@pytest.mark.parametrize("strategy", [HALF, selective()])
def test_keys_need_not_be_numbers(keys, strategy):
    loader = select(DataLoader(ByName(), batch_size=4, sampler=keys), strategy, with_selection=True)
    batches = list(loader)
    assert all(selection.indices is None for _, selection in batches)
    chosen = flat(numbers(batch for batch, _ in batches))
    assert len(chosen) == len(set(chosen)) == 12


def test_a_sampler_of_single_indices_is_a_stream_that_cannot_be_drawn_from_before_loading():
    data = Numbered(8)
    loader = DataLoader(data, batch_size=None, sampler=NotedSampler(8))
    with pytest.warns(sb.SelectionWarning, match="regroups"):
        selecting = select(loader, HALF, batch_size=2)
    with pytest.raises(sb.LoaderError, match="yields single indices"):
        next(iter(selecting))
    assert data.reads.sum() == 0


AHEAD = ["random", "random, coins", "selective, coins", "selective, fractions", "stale"]
AHEAD += ["predicted", "stale, spread, coins", "stale, spread", "recorded, rescored", "kath18"]


@pytest.mark.parametrize(
    ("name", "workers"), [*((name, 2) for name in AHEAD), ("random", 1), ("selective, coins", 1)]
)
def test_choices_do_not_depend_on_how_far_workers_run_ahead(name, workers):
    def train(workers: int) -> Any:
        training = Training(STRATEGIES[name], workers=workers)
        return [training.epoch(stop) for stop in (2, 3, None, None)], outcome(training)

    assert train(workers) == train(0)
