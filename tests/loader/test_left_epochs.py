"""A state that is saved after leaving an epoch in the middle continues this epoch."""

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, NumberedStream, bits, flat, numbers, select, selective
from fixture_training import STRATEGIES, Training, outcome
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

import selective_backprop as sb

# What a scorer that runs ahead has begun with earlier weights is begun anew.
EXACT = {name: each for name, each in STRATEGIES.items() if "pipelined" not in name}


class Failure(Exception):
    pass


def failing(after: int, first: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Return a function that calls `first`, and raises in its `after`-th call."""
    calls = iter(range(after - 1))

    def fail() -> None:
        first()
        if next(calls, None) is None:
            raise Failure

    return fail


def leave(training: Training, stop: int, how: str) -> None:
    """Train on `stop` batches of an epoch, and leave it."""
    if how == "break":
        training.epoch(stop)
    else:
        with pytest.raises(Failure):
            training.epoch(after=failing(stop))


@pytest.mark.parametrize("how", ["break", "error"])
@pytest.mark.parametrize("name", EXACT)
def test_a_state_saved_after_leaving_an_epoch_continues_it_bit_for_bit(name, how):
    whole = Training(EXACT[name])
    _, second, third = (whole.epoch() for _ in range(3))
    for stop in {1, (len(second) + 1) // 2, len(second)}:
        left = Training(EXACT[name])
        left.epoch()
        leave(left, stop, how)
        saved = left.save()
        resumed = Training(EXACT[name], seed=2)
        resumed.load(saved)
        assert resumed.loader.next_epoch == 1
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
        with suppress(Failure):
            for _ in range(training.loader.next_epoch, 3):
                training.epoch(after=after)
        return (training.save(), scheduler.state_dict()), outcome(training)

    (_, schedule), expected = train(99)
    (_, resumed), found = train(99, train(stop)[0])
    assert (found, resumed) == (expected, schedule)


@pytest.mark.parametrize("name", ["traditional", "selective", "stale", "recorded", "kath18"])
def test_with_workers_it_continues_with_the_batches_that_were_prefetched(name):
    whole = Training(STRATEGIES[name])
    second = [whole.epoch() for _ in range(2)][1]
    left = Training(STRATEGIES[name], workers=2)
    left.epoch()
    left.epoch(2)
    saved = left.save()
    resumed = Training(STRATEGIES[name], seed=2, workers=1)
    resumed.load(saved)
    assert resumed.epoch() == second[2:]


@pytest.mark.parametrize("leftovers", ["carry", "flush", "drop"])
@pytest.mark.parametrize(
    "strategy",
    [sb.random_backprop(1 / 2), selective(1 / 2), STRATEGIES["stale, spread, coins"]],
    ids=["random", "selective", "stale"],
)
def test_leaving_at_the_last_batch_leaves_what_the_end_of_the_epoch_does(strategy, leftovers):
    whole = Training(strategy, leftovers=leftovers)
    first, second = whole.epoch(), whole.epoch()
    left = Training(strategy, leftovers=leftovers)
    left.epoch(len(first))
    saved = left.save()
    resumed = Training(strategy, leftovers=leftovers, seed=2)
    resumed.load(saved)
    assert [resumed.epoch(), resumed.epoch()] == [[], second]
    assert outcome(resumed) == outcome(whole)


def test_a_new_iteration_begins_the_next_epoch_and_the_epoch_that_was_left_is_over():
    loader = select(DataLoader(Numbered(24), 4), sb.traditional())
    next(iter(loader))
    assert loader.next_epoch == 1
    batches = iter(loader)
    next(batches)
    again = select(DataLoader(Numbered(24), 4), sb.traditional())
    again.load_state_dict(loader.state_dict())
    assert again.next_epoch == 1
    assert numbers(again) == numbers(batches)


def test_set_epoch_gives_up_the_epoch_that_was_left():
    loader = select(DataLoader(Numbered(24), 4), sb.traditional())
    next(iter(loader))
    loader.set_epoch(1)
    again = select(DataLoader(Numbered(24), 4), sb.traditional())
    again.load_state_dict(loader.state_dict())
    assert again.next_epoch == 1
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


def test_a_copy_of_a_loader_saves_the_position_of_the_running_epoch():
    loader = select(DataLoader(Numbered(24), 4), selective(1 / 2))
    batches = iter(loader)
    next(batches)
    assert bits(copy.deepcopy(loader).state_dict()) == bits(loader.state_dict())


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


class Breaking(Numbered):
    """Fails when an example is read for the first time."""

    def __init__(self, examples: int, broken: int) -> None:
        super().__init__(examples)
        self.broken = broken

    def __getitem__(self, index: int) -> Any:
        found = super().__getitem__(index)
        if index == self.broken:
            self.broken = -1
            raise Failure
        return found


WITH_ERRORS = {
    "traditional": sb.traditional(),
    "random": sb.random_backprop(1 / 2),
    "selective": selective(1 / 2),
    "coins": selective(1 / 2, draw="bernoulli"),
    "stale": sb.stale_sb(1 / 2, epochs=2, schedule=sb.Schedule()),
}


def continued(loader: sb.SelectiveLoader, make: Callable[[], sb.SelectiveLoader]) -> Any:
    """Return the rest of the epoch in a new loader, and what became of it."""
    again = make()
    again.load_state_dict(loader.state_dict())
    assert again.next_epoch == loader.stats.epoch
    return numbers(again), became(again)


def became(loader: sb.SelectiveLoader) -> Any:
    return loader.stats, bits(loader.state_dict()["parts"])


@pytest.mark.parametrize("strategy", WITH_ERRORS.values(), ids=WITH_ERRORS)
def test_after_an_error_in_the_data_set_the_batch_that_failed_comes_next(strategy):
    def make(broken: int = -1) -> sb.SelectiveLoader:
        return select(DataLoader(Breaking(48, broken), 4), strategy)

    whole = make()
    expected = numbers(whole), became(whole)
    read = flat(expected[0])
    for broken in (read[0], read[10], read[-1]):
        loader, seen = make(broken), []
        with pytest.raises(Failure):
            seen.extend(batch[1].tolist() for batch in loader)
        rest, ended = continued(loader, make)
        assert (seen + rest, ended) == expected


@pytest.mark.parametrize("strategy", list(WITH_ERRORS.values())[2:], ids=list(WITH_ERRORS)[2:])
@pytest.mark.parametrize("error", [Failure, KeyboardInterrupt])
def test_after_an_error_in_scoring_the_batch_that_was_scored_comes_next(strategy, error):
    def make(fails: int = 0) -> sb.SelectiveLoader:
        calls = iter(range(1, 100))

        def losses(model: nn.Module, batch: Any) -> torch.Tensor:
            if next(calls) == fails:
                raise error
            return torch.frac((batch[1].double() + 1) * 0.6180339887498949)

        return select(DataLoader(Numbered(48), 4), strategy, losses=losses)

    whole = make()
    expected = numbers(whole), became(whole)
    for fails in (1, 2, 7, 12):
        loader, seen = make(fails), []
        with pytest.raises(error):
            seen.extend(batch[1].tolist() for batch in loader)
        rest, ended = continued(loader, make)
        assert (seen + rest, ended) == expected


class Choosing(sb.selectors.RunningSelector):
    """Takes a random half of each window, and fails once."""

    fails = 0

    def __init__(self, context: sb.selectors.Context) -> None:
        self.quota = context.quota

    def select(self, scores: torch.Tensor, history: Any, generator: Any) -> sb.selectors.Choice:
        Choosing.fails -= 1
        if Choosing.fails == 0:
            raise Failure
        rows = torch.randperm(len(scores), generator=generator)[: self.quota(len(scores))]
        return sb.selectors.Choice(rows.sort().values)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@dataclass(frozen=True)
class Half(sb.selectors.AbstractSelector):
    draw: sb.selectors.Draw

    @property
    def terms(self) -> sb.selectors.Terms:
        return sb.selectors.Terms(1 / 2, draw=self.draw)

    def start(self, context: sb.selectors.Context) -> Choosing:
        return Choosing(context)


STALE = sb.scorers.Stale(sb.scorers.Forward(), epochs=2)


@pytest.mark.parametrize(
    ("scorer", "draw", "fails"),
    [
        (STALE, "exact", 5),
        (STALE, "bernoulli", 1),  # a single draw from all examples
        (sb.scorers.Forward(), "exact", 5),
        (sb.scorers.Forward(), "bernoulli", 5),
    ],
)
def test_after_an_error_in_a_draw_no_candidate_is_lost(scorer, draw, fails):
    def make() -> sb.SelectiveLoader:
        half = Half(sb.selectors.Draw(draw))
        return select(DataLoader(Numbered(48), 4), sb.Strategy("half", scorer, half))

    whole = make()
    list(whole)
    expected = numbers(whole), became(whole)
    loader, seen = make(), []
    list(loader)
    Choosing.fails = fails
    with pytest.raises(Failure):
        seen.extend(batch[1].tolist() for batch in loader)
    rest, ended = continued(loader, make)
    assert (seen + rest, ended) == expected


def test_rows_that_cannot_be_joined_wait_on():
    def collate(rows: list) -> Any:
        return torch.zeros(len(rows), 1 + (rows[0][1] == 8)), torch.tensor([row[1] for row in rows])

    def make(collate_fn: Any = None) -> sb.SelectiveLoader:
        loader = DataLoader(Numbered(16), 4, collate_fn=collate_fn)
        return select(loader, selective(1 / 2), batch_size=6)

    selecting, seen = make(collate), []
    with pytest.raises(sb.BatchError):
        seen.extend(batch[1].tolist() for batch in selecting)
    state = selecting.state_dict()
    assert selecting.stats.candidates == 12
    assert selecting.stats.waiting + len(flat(seen)) == 12
    selecting.load_state_dict(state)
    with pytest.raises(sb.BatchError):
        next(iter(selecting))


def test_an_epoch_that_could_not_begin_is_the_next_one():
    training = Training(sb.auto())
    for _ in training.loader:  # no losses are recorded
        pass
    with pytest.raises(sb.LossError, match="none was recorded"):
        next(iter(training.loader))
    assert training.loader.next_epoch == 1
    assert training.loader.state_dict()["next_epoch"] == 1
    assert training.loader.state_dict()["mid_epoch"] is None


def test_an_epoch_that_could_not_be_continued_still_waits_in_the_state():
    training = Training(STRATEGIES["recorded, rescored"])
    training.epoch()
    training.epoch(2)
    saved, state = training.save(), training.loader.state_dict()
    training.load(saved)
    training.sampler.examples = 12  # so it draws another order
    with pytest.raises(sb.LoaderError, match="does not draw these again"):
        next(iter(training.loader))
    again = training.loader.state_dict()
    for part in ("next_epoch", "mid_epoch", "position", "stats", "parts"):
        assert bits(again[part]) == bits(state[part])


def test_a_stream_without_a_position_begins_its_next_epoch():
    loader = select(DataLoader(NumberedStream(28), 4), selective(1 / 2))
    next(iter(loader))
    again = select(DataLoader(NumberedStream(28), 4), selective(1 / 2))
    again.load_state_dict(loader.state_dict())
    assert again.next_epoch == loader.next_epoch == 1
