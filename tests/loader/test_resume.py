"""A training goes on from a saved state as if it had not stopped."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, bits, numbers, select, selective
from fixture_training import STRATEGIES, Training, check_batches, outcome
from torch.utils.data import DataLoader, RandomSampler, WeightedRandomSampler

import selective_backprop as sb

# What a scorer that runs ahead has begun with earlier weights is begun anew.
EXACT = {name: each for name, each in STRATEGIES.items() if "pipelined" not in name}
LEFTOVERS = {
    "random": sb.random_backprop(1 / 2),
    "selective": selective(1 / 2),
    "stale": STRATEGIES["stale, spread, coins"],
}
HIDE = sb.kakurenbo(0.5, confidence=0.5, schedule=sb.Schedule(warmup_epochs=2))
SAMPLERS = {
    "torch's global stream": lambda: RandomSampler(range(40)),
    "a generator of its own": lambda: RandomSampler(range(40), generator=torch.Generator()),
    "with replacement": lambda: WeightedRandomSampler([1.0, 2.0] * 20, 40),
}
CASES = {name: (each, {}) for name, each in EXACT.items()}
for name in ("random, coins", "selective", "stale", "kath18"):
    CASES[f"{name}, small batches"] = EXACT[name], {"trains": 3}
for name, each in LEFTOVERS.items():
    for leftovers in ("flush", "drop"):
        CASES[f"{name}, {leftovers}"] = each, {"leftovers": leftovers}
CASES["a warm-up that drops"] = HIDE, {"leftovers": "drop", "trains": 7}
CASES["a worker"] = EXACT["random"], {"workers": 1}
DIET = sb.diet_sb(sb.Subset(torch.arange(0, 40, 2), 40), rate=1 / 2)
CASES["a subset"] = DIET, {"sampler": SAMPLERS["a generator of its own"]}
for name, each in SAMPLERS.items():
    CASES[name] = selective(1 / 3), {"sampler": each}


@pytest.mark.filterwarnings("ignore:.* undoes a part of what WeightedRandomSampler")
@pytest.mark.parametrize("name", CASES)
def test_a_state_saved_after_any_batch_continues_bit_for_bit(name):
    strategy, options = CASES[name]

    def make(seed):
        made = {key: each() if key == "sampler" else each for key, each in options.items()}
        return Training(strategy, seed=seed, **made)

    check_batches(make, thoroughly=options.get("trains") == 3)


@pytest.mark.parametrize("stop", [None, 2], ids=["at an epoch's end", "after giving up the rest"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_state_saved_between_epochs_continues_bit_for_bit(name, stop):
    whole, resumed = Training(STRATEGIES[name]), Training(STRATEGIES[name], seed=2)
    whole.epoch()
    whole.epoch(stop)
    whole.loader.set_epoch(2)
    saved, progress = whole.save(), whole.loader.progress
    rest = [whole.epoch() for _ in range(2)]
    for begun in (1, 0):  # loading ends an epoch that runs; the seed is part of what is saved
        resumed.epoch(begun)
        resumed.load(saved)
        assert resumed.loader.progress == progress
    assert [resumed.epoch() for _ in range(2)] == rest
    assert outcome(resumed) == outcome(whole)


def failing(after: int, first: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Return a function that calls `first`, and raises in its `after`-th call."""
    calls = iter(range(after - 1))

    def fail() -> None:
        first()
        if next(calls, None) is None:
            raise ArithmeticError

    return fail


@pytest.mark.parametrize("name", ["random", "selective", "stale", "recorded", "kath18"])
def test_a_state_saved_after_an_error_in_the_loop_continues_bit_for_bit(name):
    whole = Training(EXACT[name])
    _, second, third = (whole.epoch() for _ in range(3))
    for stop in {1, len(second)}:
        left, resumed = Training(EXACT[name]), Training(EXACT[name], seed=2)
        left.epoch()
        with pytest.raises(ArithmeticError):
            left.epoch(after=failing(stop))
        resumed.load(left.save())
        assert resumed.loader.stats == left.loader.stats
        assert [resumed.epoch(), resumed.epoch()] == [second[stop:], third]
        assert outcome(resumed) == outcome(whole)


@pytest.mark.parametrize("stop", [3, 10, 13])
def test_a_schedule_that_counts_candidates_is_where_the_loader_is(stop):
    def train(stop: int, parts: tuple[Any, ...] | None = None) -> Any:
        training = Training(sb.recorded_sb(1 / 2), loads=4)
        one_cycle = torch.optim.lr_scheduler.OneCycleLR(training.optimizer, 0.1, total_steps=50)
        scheduler = sb.CandidateScheduler(one_cycle, training.loader)
        if parts is not None:
            training.load(parts[0])
            scheduler.load_state_dict(parts[1])
        after = failing(stop, scheduler.step)
        with suppress(ArithmeticError):
            for _ in range(training.loader.next_epoch, 3):
                training.epoch(after=after)
        return (training.save(), scheduler.state_dict()), outcome(training)

    (_, schedule), expected = train(99)
    (_, resumed), found = train(99, train(stop)[0])
    assert (found, resumed) == (expected, schedule)


@pytest.mark.parametrize("name", ["random", "selective", "stale", "recorded", "kath18"])
def test_what_workers_prefetched_is_not_part_of_the_state(name):
    states, rests = [], []
    for workers in (0, 2):
        training, resumed = Training(EXACT[name], workers=workers), Training(EXACT[name], workers=1)
        training.epoch()
        training.epoch(2)
        # how far the order was drawn is noted beside how the epoch began
        states.append(repr(training.loader.state_dict() | {"mid_epoch": None}))
        resumed.load(training.save())
        rests.append(resumed.epoch())
    assert states[0] == states[1]
    assert rests[0] == rests[1]


def plain() -> sb.SelectiveLoader:
    return select(DataLoader(Numbered(24), 4), sb.traditional())


def test_a_new_iteration_or_set_epoch_gives_up_the_epoch_that_was_left():
    loader, again = plain(), plain()
    next(iter(loader))
    assert loader.next_epoch == 1
    batches = iter(loader)
    next(batches)
    again.load_state_dict(loader.state_dict())
    assert again.next_epoch == 1
    assert numbers(again) == numbers(batches)
    next(iter(loader))
    loader.set_epoch(3)
    again.load_state_dict(loader.state_dict())
    assert again.next_epoch == 3
    assert len(numbers(again)) == 6


def test_a_loader_continues_the_epoch_that_it_left_if_it_loads_its_own_state():
    training, whole = Training(STRATEGIES["recorded"]), Training(STRATEGIES["recorded"])
    torch.manual_seed(3)
    training.epoch()
    training.epoch(2)
    training.loader.load_state_dict(training.loader.state_dict())
    assert training.loader.next_epoch == 1
    training.epoch()
    torch.manual_seed(3)
    whole.epoch()
    whole.epoch()
    assert outcome(training) == outcome(whole)


LOOKED_AT = {
    "selective": selective(1 / 3),
    "stale": STRATEGIES["stale"],
    "hide": sb.kakurenbo(),
    "easy-skip": sb.easy_skip(),
    "auto": sb.auto(),
}


@pytest.mark.parametrize("epochs", [0, 1, 2])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_looking_at_a_loader_between_leaving_and_saving_changes_nothing(name, epochs):
    def make() -> Training:
        sampler = RandomSampler(range(60))
        return Training(LOOKED_AT[name], examples=60, loads=2, sampler=sampler)

    def train(look: bool) -> Any:
        left = make()
        for _ in range(epochs):
            left.epoch()
        left.epoch(2 if epochs else 25)
        loader = left.loader
        for each in (lambda: len(loader), lambda: loader.lengths(1), lambda: loader.scores) * look:
            with suppress(TypeError):  # the length is not known
                each()
        saved = left.save()
        resumed = make()
        resumed.load(saved)
        return [resumed.epoch(), resumed.epoch()], outcome(resumed)

    assert train(look=True) == train(look=False)


@pytest.mark.parametrize("strategy", [sb.traditional(), selective(1 / 2)], ids=["plain", "sb"])
def test_a_state_may_be_saved_again_before_anything_new_was_drawn(strategy):
    """Rows wait when the first state is saved, and the second is saved while they go out."""

    def make():
        loader = DataLoader(Numbered(32), 8, sampler=RandomSampler(range(32)))
        return select(loader, strategy, batch_size=2, quiet=True)

    torch.manual_seed(3)
    whole, seen, saves = make(), [], []
    for batch in whole:
        seen.append(batch[1].tolist())
        saves.append(whole.state_dict())
    again = make()
    again.load_state_dict(saves[0])
    running = iter(again)
    assert next(running)[1].tolist() == seen[1]
    third = make()
    third.load_state_dict(again.state_dict())
    assert numbers(third) == seen[2:]
    assert third.stats.candidates == whole.stats.candidates


def test_an_epoch_that_goes_on_draws_no_second_seed_from_the_data_loaders_own_generator():
    def make():
        generator = torch.Generator().manual_seed(5)
        loader = DataLoader(Numbered(32), 8, shuffle=True, generator=generator)
        return select(loader, sb.traditional(), batch_size=2, quiet=True)

    whole = make()
    next(iter(whole))  # the epoch is broken off, and its other rows wait for the next one
    batches = iter(whole)
    next(batches)
    state, expected = whole.state_dict(), numbers(batches)
    resumed = make()
    resumed.load_state_dict(state)
    assert numbers(resumed) == expected


def test_what_came_up_before_is_not_loaded_again():
    data = Numbered(24)
    loader = select(DataLoader(data, 4), selective(1 / 2))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.load_state_dict(state)
    data.reads.zero_()
    assert numbers(loader)
    assert data.reads.tolist() == [0] * 8 + [1] * 16


def test_a_state_that_is_loaded_and_saved_again_is_the_same_and_later_batches_do_not_change_it():
    training, resumed = Training(STRATEGIES["stale"]), Training(STRATEGIES["stale"])
    training.epoch()
    saves = []
    training.epoch(after=lambda: saves.append(training.loader.state_dict()))
    before = bits(saves[1])
    training.epoch()
    assert bits(saves[1]) == before
    resumed.loader.load_state_dict(saves[1])
    again = resumed.loader.state_dict()
    begun, expected = (state.pop("mid_epoch")[3] for state in (again, saves[1]))
    assert bits(begun[1:]) == bits(expected[1:])  # the first says what waited when it began
    assert bits(again) == bits(saves[1])


def test_loading_ends_the_pass_that_runs():
    training = Training(selective(1 / 2))
    saved = training.save()
    batches = iter(training.loader)
    next(batches)
    training.load(saved)
    with pytest.raises(sb.LoaderError, match="another iteration"):
        next(batches)
    assert training.loader.stats == sb.Stats()
