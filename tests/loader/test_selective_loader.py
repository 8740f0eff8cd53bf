"""The loader: phases, lengths, epochs, seeds and what it says of itself."""

import copy
import dataclasses
import pickle
import weakref
from typing import Any

import pytest
import torch
from fixture_loaders import (
    Numbered,
    flat,
    losses_by_number,
    numbers,
    select,
    selective,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb


class Scoring:
    """Losses by number, and a note of which examples were scored."""

    def __init__(self) -> None:
        self.scored: list[list[int]] = []

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        self.scored.append(batch[1].tolist())
        return losses_by_number(model, batch)


def test_a_warm_up_is_scored_just_once_to_see_that_it_can_be():
    losses = Scoring()
    loader = select(DataLoader(Numbered(24), 4), selective(warmup_epochs=2), losses=losses)
    for _ in range(2):
        assert flat(numbers(loader)) == list(range(24))
    assert losses.scored == [[0, 1, 2, 3]]
    assert loader.state_dict()["parts"]["history"]["filed"] == 0
    assert len(flat(numbers(loader))) == 12
    assert loader.stats.scored == 4 + 24
    assert loader.state_dict()["parts"]["history"]["filed"] == 24


def test_selection_acts_between_two_fractions_of_the_candidates():
    losses = Scoring()
    strategy = selective(start=0.3, end=0.7)
    loader = select(DataLoader(Numbered(20), 2), strategy, losses=losses, epochs=4)
    batches = [numbers(loader) for _ in range(4)]
    # 40 candidate batches, of which number 12 to 27 are selected from, and the first one tried
    assert losses.scored == [
        [2 * (number % 10), 2 * (number % 10) + 1] for number in [0, *range(12, 28)]
    ]
    assert [len(epoch) for epoch in batches] == [10, 2 + 8 // 2, 8 // 2 + 2, 10]


@pytest.mark.parametrize("scored", [True, False])
def test_waiting_rows_go_first_where_an_unselective_phase_begins(scored):
    strategy = sb.Strategy(
        "until half time",
        sb.scorers.Forward() if scored else None,
        sb.selectors.Uniform(1 / 2),
        sb.Schedule(end=0.5),
    )
    loader = select(DataLoader(Numbered(22), 4), strategy, epochs=2)
    assert [len(batch) for batch in numbers(loader)] == [4, 4]
    assert loader.stats.waiting == 6  # 22 candidates, of which a window takes 8
    assert len(loader) == 7
    last = numbers(loader)
    assert flat(last) == [16, 17, 18, 19, 20, 21, *range(22)]
    assert [len(batch) for batch in last] == [4] * 7


def test_an_epoch_without_leftovers_flushes_in_proportion_and_at_least_one_row():
    for examples, expected in [(16, [4, 4]), (17, [4, 4, 1]), (20, [4, 4, 2]), (3, [2])]:
        loader = select(DataLoader(Numbered(examples), 4), selective(), leftovers="flush")
        assert len(loader) == len(expected)
        assert [len(batch) for batch in numbers(loader)] == expected
        assert loader.stats.waiting == 0


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
    data, sampler = Telling(range(8)), Telling(range(8))
    loader = select(DataLoader(data, 4, sampler=sampler), selective())
    loader.set_epoch(5)
    assert (data.told, sampler.told) == ([5], [5])
    assert list(loader)
    assert loader.stats.epoch == 5
    batches = Telling([[0, 1], [2, 3]])
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


def equal_losses(model: nn.Module, batch: Any) -> Tensor:
    return torch.ones(len(batch[1]))


def test_coins_keep_none_of_equal_losses_and_the_warning_says_why():
    loader = select(DataLoader(Numbered(24), 4), selective(draw="bernoulli"), losses=equal_losses)
    with pytest.warns(sb.SelectionWarning, match="had 24 .* 100%") as caught:
        assert list(loader) == []
    assert len(caught) == 1
    assert loader.stats.ties == 1.0
    assert loader.stats.waiting == 0


def test_too_few_candidates_for_a_window_are_warned_about_and_kept():
    loader = select(DataLoader(Numbered(6), 4), selective())
    with pytest.warns(sb.SelectionWarning, match="6 examples wait"):
        assert list(loader) == []
    assert [len(batch) for batch in numbers(loader)] == [4]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"leftovers": "drop"}, r"6 were dropped.*leftovers='carry' or a smaller batch size"),
        (
            {"nonfinite": "skip", "losses": lambda model, batch: torch.full((2,), torch.nan)},
            "6 were skipped because their losses are not finite",
        ),
    ],
    ids=["dropped", "skipped"],
)
def test_an_epoch_without_a_batch_is_explained_by_what_became_of_its_examples(options, reason):
    loader = select(DataLoader(Numbered(6), 2), selective(), batch_size=4, **options)
    with pytest.warns(sb.SelectionWarning, match=reason):
        assert list(loader) == []


def test_it_has_what_frameworks_look_for_and_is_no_data_loader():
    loader = DataLoader(Numbered(16), 4, shuffle=True)
    strategy = selective()
    selecting = select(loader, strategy, batch_size=2)
    assert selecting.dataset is loader.dataset
    assert selecting.sampler is loader.sampler
    assert selecting.batch_size == 2
    assert selecting.strategy is strategy
    assert not isinstance(selecting, DataLoader)
    assert not hasattr(selecting, "batch_sampler")


def test_it_is_not_pickled_and_says_what_to_hand_over_and_can_be_copied_with_its_model():
    loader = select(DataLoader(Numbered(22), 4), sb.random_backprop(1 / 2))
    with pytest.raises(TypeError, match=r"SelectiveLoader .* load_state_dict"):
        pickle.dumps(loader)
    twin = copy.deepcopy(loader)
    assert numbers(twin) == numbers(loader)


@pytest.mark.parametrize("strategy", [selective(), sb.stale_sb(1 / 2)], ids=lambda each: each.name)
def test_a_copy_that_is_made_in_the_middle_of_an_epoch_leaves_this_epoch_running(strategy):
    loader = select(DataLoader(Numbered(24), 4), strategy)
    list(loader)
    batches = iter(loader)
    next(batches)
    twin, state = copy.deepcopy(loader), loader.state_dict()
    assert twin.next_epoch == 2
    assert list(twin)
    assert numbers(batches)
    assert loader.stats.epoch == 1
    assert twin.stats.epoch == 2
    assert state["mid_epoch"] is not None


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


@pytest.mark.parametrize("strategy", [sb.random_backprop(1 / 2), selective(start=0.1)])
def test_nothing_but_the_user_keeps_it_alive(strategy):
    # A circle would leave its workers running until the garbage collector comes by.
    loader = select(DataLoader(Numbered(16), 4), strategy, epochs=2)
    list(loader)
    len(loader)
    gone = weakref.ref(loader)
    del loader
    assert gone() is None


@pytest.mark.parametrize(
    "strategy", [selective(draw="bernoulli"), sb.random_backprop(0.5, draw="bernoulli")]
)
def test_a_loader_is_true_even_where_it_has_no_length(strategy):
    loader = select(DataLoader(Numbered(8), 4), strategy)
    assert loader
    with pytest.raises(TypeError):
        len(loader)


@pytest.mark.parametrize("options", [{"whole": {"grid"}}, {"pad": {"ids": 0.0}}])
@pytest.mark.parametrize("strategy", [selective(), sb.traditional(), sb.random_backprop(1 / 2)])
def test_paths_that_lead_nowhere_are_refused_at_the_first_batch(strategy, options):
    loader = select(DataLoader(Numbered(16), 4), strategy, **options)
    [name] = options
    with pytest.raises(sb.BatchError, match=f"{name}= names .* are '0', '1'"):
        next(iter(loader))
