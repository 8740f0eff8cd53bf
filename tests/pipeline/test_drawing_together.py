"""Candidate batches whose scores are all known are drawn from several at once, to the same end."""

import pytest
import torch
from fixture_loaders import Noting, Numbered
from fixture_memory import Loop, strategy
from fixture_training import STRATEGIES, Training, check_batches
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

import selective_backprop as sb
from selective_backprop._pipeline import index_sampler as _draw

pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")

WARM = sb.Schedule(warmup_epochs=1)


@pytest.fixture
def thirds(monkeypatch):
    """A third of an epoch is drawn from at once, however few batches it has."""
    monkeypatch.setattr(_draw, "LEAST_DRAWS", 3)


REMEMBERING = ["stale", "stale, spread", "predicted", "recorded"]
AUTO = sb.Strategy("auto", sb.auto().scorer, sb.selectors.Confident(0.3, 0.0), sb.auto().schedule)
SAVED = *REMEMBERING, "stale, spread, coins", "recorded, rescored"
CASES = {name: (STRATEGIES[name], {}) for name in SAVED}
for leftovers in ("flush", "drop"):  # of 40 it flushes one row, too few for batch statistics
    CASES[f"auto, {leftovers}"] = AUTO, {"leftovers": leftovers, "examples": 38}


@pytest.mark.usefixtures("thirds")
@pytest.mark.parametrize("name", CASES)
def test_a_state_saved_in_the_middle_goes_on_bit_for_bit(name):
    strategy, options = CASES[name]
    check_batches(lambda seed: Training(strategy, seed=seed, **options), thoroughly=True)


@pytest.mark.parametrize("name", REMEMBERING)
def test_exact_draws_are_the_same_from_one_batch_at_a_time(name, monkeypatch):
    def chosen(least: int) -> list[list[list[int]]]:
        monkeypatch.setattr(_draw, "LEAST_DRAWS", least)
        training = Training(STRATEGIES[name])
        return [training.epoch() for _ in range(5)]

    assert chosen(3) == chosen(1_000)


class Uncounted(BatchSampler):
    """Batches of which nobody knows how many there are."""

    def __len__(self):
        raise TypeError("nobody knows")


@pytest.mark.parametrize(
    ("batches", "kind", "most", "windows"),
    [
        (31, BatchSampler, 2**20, [124]),
        (64, Uncounted, 2**20, [256]),
        (64, BatchSampler, 100, [100, 100, 56]),
    ],
)
def test_coins_are_tossed_once_an_epoch_for_all_examples_or_in_parts_if_they_are_very_many(
    batches, kind, most, windows, monkeypatch
):
    monkeypatch.setattr(_draw, "MOST_AT_ONCE", most)
    noting = Noting(sb.selectors.Confident())
    sampler = kind(SequentialSampler(range(4 * batches)), 4, False)
    loader = sb.SelectiveLoader(
        DataLoader(Numbered(4 * batches), batch_sampler=sampler),
        *(nn.Linear(2, 3), nn.CrossEntropyLoss()),
        sb.Strategy("noted", sb.scorers.Recorded(), noting, WARM),
        **{"epochs": 4, "batch_size": 4, "with_selection": True},
    )
    for _ in range(3):
        noting.windows.clear()
        for _, selection in loader:
            loader.record(selection, torch.rand(len(selection.indices)))
    assert [*map(len, noting.windows)] == windows


def test_an_example_that_comes_up_twice_in_an_epoch_has_one_fate():
    data, model = Numbered(64), nn.Linear(2, 3)
    loader = DataLoader(data, 4, sampler=[*range(64), *range(64)])
    selecting = sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), sb.auto(), with_selection=True, quiet=True
    )
    for _ in range(2):
        counts = torch.zeros(64)
        for _, selection in selecting:
            counts[selection.indices] += 1
            selecting.record(selection, 0.3 * torch.rand(len(selection.indices)), targets=())
    waiting = selecting.stats.waiting
    assert (counts == 1).sum() <= waiting
    assert 10 < (counts == 0).sum() < 54


def test_what_was_gathered_when_selection_ends_is_drawn_from_first():
    # Selection ends after 3/4 of two epochs: in the middle of the second one, and of a gathering.
    schedule = sb.Schedule(warmup_epochs=1, end=0.78)
    ends = strategy(sb.scorers.Recorded(), sb.selectors.Percentile(2.0), schedule)
    loop = Loop(ends, examples=400, options={"epochs": 2}).epochs(2)
    first, second = loop.sampler.passes[-1][:224], loop.sampler.passes[-1][224:]
    trained = loop.trained[-1]
    assert trained[-len(second) :] == second
    assert set(trained[: -len(second)]) <= set(first)
    assert 0 < len(trained) - len(second) < len(first)
    # Of 18 windows of 12 are 8 candidates left, which need no draw any more.
    assert set(first[18 * 12 :]) <= set(trained)


def test_what_is_drawn_ahead_keeps_its_own_weights():
    losses = torch.rand(64)
    loader = sb.SelectiveLoader(
        DataLoader(Numbered(64), 4, shuffle=True),
        *(nn.Linear(2, 3), nn.CrossEntropyLoss(), sb.infobatch(prune=0.5)),
        **{"epochs": 8, "with_selection": True, "quiet": True},
    )
    for _ in range(2):
        rows = [selection for _, selection in loader]
        for selection in rows:
            loader.record(selection, losses[selection.indices])
    indices = torch.cat([selection.indices for selection in rows])
    weights = torch.cat([selection.weights for selection in rows])
    pruned = losses[indices] < losses.mean()
    assert 0 < pruned.sum() < len(pruned)
    torch.testing.assert_close(weights[pruned], 2 * weights[~pruned].mean().expand(pruned.sum()))
