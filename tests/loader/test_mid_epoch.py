"""A state that is saved between two batches goes on between them, and nothing comes up twice."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from fixture_loaders import (
    NotedSampler,
    Numbered,
    NumberedStream,
    bits,
    fixture_data,
    numbers,
    select,
    selective,
)
from fixture_training import STRATEGIES, Training, check_batches
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
)

import selective_backprop as sb

# What a scorer that runs ahead has begun with earlier weights is begun anew.
EXACT = {name: each for name, each in STRATEGIES.items() if "pipelined" not in name}


@pytest.mark.parametrize("name", EXACT)
def test_whichever_batch_a_state_is_saved_after_the_rest_is_the_same_bit_for_bit(name):
    check_batches(lambda seed: Training(STRATEGIES[name], seed=seed))


@pytest.mark.parametrize("name", ["random, coins", "selective", "stale", "kath18"])
def test_so_it_is_between_batches_that_one_candidate_batch_completed(name):
    check_batches(lambda seed: Training(STRATEGIES[name], seed=seed, trains=3), thoroughly=True)


@pytest.mark.parametrize("leftovers", ["flush", "drop"])
@pytest.mark.parametrize(
    "strategy",
    [sb.random_backprop(1 / 2), selective(1 / 2), STRATEGIES["stale, spread, coins"]],
    ids=["random", "selective", "stale"],
)
def test_so_it_is_whatever_becomes_of_leftovers(strategy, leftovers):
    check_batches(lambda seed: Training(strategy, seed=seed, leftovers=leftovers))


def test_what_a_warm_up_drops_is_not_scored_at_the_end_of_an_epoch_that_goes_on():
    strategy = sb.kakurenbo(0.5, confidence=0.5, schedule=sb.Schedule(warmup_epochs=2))
    check_batches(lambda seed: Training(strategy, seed=seed, leftovers="drop", trains=7))


@pytest.mark.parametrize(
    "sampler",
    [
        lambda: RandomSampler(range(40)),
        lambda: RandomSampler(range(40), generator=torch.Generator().manual_seed(5)),
        lambda: WeightedRandomSampler([1.0, 2.0] * 20, 40),
    ],
    ids=["torch's global stream", "a generator of its own", "with replacement"],
)
def test_an_order_that_torch_drew_at_random_is_drawn_again(sampler):
    check_batches(lambda seed: Training(selective(1 / 3), seed=seed, sampler=sampler()))


def test_with_workers_the_examples_are_the_same():
    check_batches(lambda seed: Training(STRATEGIES["random"], seed=seed, workers=1))


class Budget(Sampler):
    """Batches of up to 12 units, of examples that have 1 to 4 units, in random order."""

    def __init__(self, shuffle):
        self.shuffle = shuffle

    def __iter__(self):
        batches, load = [[]], 0
        for index in range(40):
            load += 1 + index % 4
            if load > 12:
                batches.append([])
                load = 1 + index % 4
            batches[-1].append(index)
        self.shuffle(batches)
        return iter(batches)


class Lazy(Budget):
    def __iter__(self):
        batches = list(super().__iter__())
        while batches:
            self.shuffle(batches)
            yield batches.pop()


def shuffle_by_torch(batches, generator=None):
    batches[:] = [batches[i] for i in torch.randperm(len(batches), generator=generator)]


def seed_all(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@pytest.mark.filterwarnings("ignore:.* regroups the drawn examples")
@pytest.mark.parametrize("strategy", [sb.traditional(), selective(1 / 2)], ids=["plain", "sb"])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [Budget, Lazy])
@pytest.mark.parametrize("shuffle", [shuffle_by_torch, np.random.shuffle, random.shuffle])
def test_an_order_drawn_when_an_iteration_begins_is_drawn_again(shuffle, kind, workers, strategy):
    def make(seed):
        loader = DataLoader(Numbered(40), batch_sampler=kind(shuffle), num_workers=workers)
        seed_all(seed)
        return select(loader, strategy, batch_size=4, quiet=True)

    whole = make(3)
    list(whole)
    batches = iter(whole)
    next(batches), next(batches)
    state, stream = whole.state_dict(), torch.get_rng_state()
    streams = np.random.get_state(), random.getstate()
    expected = [numbers(batches), numbers(whole)]
    resumed = make(99)
    resumed.load_state_dict(state)
    torch.set_rng_state(stream)
    np.random.set_state(streams[0])
    random.setstate(streams[1])
    assert [numbers(resumed), numbers(resumed)] == expected


@pytest.mark.parametrize(
    "shuffle",
    [
        lambda: partial(shuffle_by_torch, generator=torch.Generator().manual_seed(torch.seed())),
        lambda: np.random.default_rng().shuffle,
        lambda: random.Random().shuffle,
    ],
    ids=["torch", "numpy", "python"],
)
@pytest.mark.parametrize("kind", [Budget, Lazy])
def test_an_order_of_random_numbers_that_cannot_be_drawn_again_is_refused(kind, shuffle):
    def make():
        return select(DataLoader(Numbered(40), batch_sampler=kind(shuffle())), sb.traditional())

    left = make()
    batches = iter(left)
    for _ in range(6):
        next(batches)
    resumed = make()
    resumed.load_state_dict(left.state_dict())
    with pytest.raises(sb.LoaderError, match=r"set_epoch\(1\).*random numbers.*torch.Generator"):
        next(iter(resumed))


def test_an_order_that_workers_drew_ahead_between_other_random_numbers_is_refused():
    def make():
        loader = DataLoader(Numbered(40), batch_sampler=Lazy(shuffle_by_torch), num_workers=1)
        return select(loader, sb.traditional())

    seed_all(3)
    left = make()
    batches = iter(left)
    next(batches)
    torch.rand(1)  # as dropout would
    next(batches)  # of those that were drawn before; others were drawn since
    resumed = make()
    resumed.load_state_dict(left.state_dict())
    with pytest.raises(sb.LoaderError, match="does not draw these again"):
        next(iter(resumed))


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")
def test_the_order_of_a_shuffled_stateful_data_loader_is_drawn_again():
    def make():
        return select(stateful_loader()(Numbered(24), 4, shuffle=True), sb.traditional())

    whole = make()
    for _ in range(2):
        batches = iter(whole)
        next(batches)
        resumed = make()
        resumed.load_state_dict(whole.state_dict())
        assert numbers(resumed) == numbers(batches)


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


@pytest.mark.parametrize("epoch", [0, 1])
def test_the_order_of_a_subset_is_drawn_again_from_the_samplers_own_generator(epoch):
    subset = sb.Subset(torch.arange(0, 40, 2), 40)

    def make():
        sampler = RandomSampler(range(40), generator=torch.Generator().manual_seed(5))
        return select(DataLoader(Numbered(40), 4, sampler=sampler), sb.diet_sb(subset, rate=1 / 2))

    whole, resumed = make(), make()
    for _ in range(epoch):
        list(whole)
    batches = iter(whole)
    next(batches)
    resumed.load_state_dict(whole.state_dict())
    assert numbers(resumed) == numbers(batches)


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


def test_an_order_that_cannot_be_drawn_again_is_refused_with_a_way_out():
    class Restless(Sampler):
        passes = 0

        def __len__(self):
            return 40

        def __iter__(self):
            Restless.passes += 1
            return iter(torch.arange(40).roll(Restless.passes).tolist())

    training = Training(selective(1 / 2), sampler=Restless())
    saves = []
    training.epoch(after=lambda: saves.append(training.save()))
    training.load(saves[0])
    with pytest.raises(sb.LoaderError, match=r"2 batches of epoch 0.* set_epoch\(1\)"):
        next(iter(training.loader))
    training.load(saves[0])
    training.loader.set_epoch(1)
    assert training.epoch()


def test_a_state_that_is_loaded_and_saved_again_is_the_same():
    training = Training(STRATEGIES["stale"])
    training.epoch()
    saves = []
    training.epoch(after=lambda: saves.append(training.loader.state_dict()))
    resumed = Training(STRATEGIES["stale"])
    resumed.loader.load_state_dict(saves[1])
    again = resumed.loader.state_dict()
    begun, expected = (state.pop("mid_epoch")[3] for state in (again, saves[1]))
    assert bits(begun[1:]) == bits(expected[1:])  # the first says what waited when it began
    assert bits(again) == bits(saves[1])


def test_a_stream_begins_its_next_epoch_since_where_it_stood_is_not_known():
    loader = select(DataLoader(NumberedStream(28), 4), selective(1 / 2))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    again = select(DataLoader(NumberedStream(28), 4), selective(1 / 2))
    again.load_state_dict(state)
    assert again.next_epoch == 1
    assert min(map(min, numbers(again))) < 8


class Countdown(IterableDataset):
    """A stream that goes on where it stood."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        while self.at < 28:
            self.at += 1
            yield torch.tensor([float(self.at), 0.0]), self.at
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Knowing(DataLoader):
    """What torchdata's loader does for a stream, without workers."""

    def state_dict(self):
        return {"stream": self.dataset.state_dict()}

    def load_state_dict(self, state):
        self.dataset.load_state_dict(state["stream"])


def stateful_loader():
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")
@pytest.mark.parametrize("kind", [lambda: Knowing, stateful_loader], ids=["own", "torchdata"])
def test_a_stream_that_knows_where_it_stands_goes_on_there(kind):
    def loader():
        return select(kind()(Countdown(), 4), selective(1 / 2))

    whole, states, batches = loader(), [], []
    for batch in whole:
        batches.append(batch[1].tolist())
        states.append(whole.state_dict())
    second = numbers(whole)
    for handed_out, state in enumerate(states, start=1):
        left = loader()
        running = iter(left)
        assert [next(running)[1].tolist() for _ in range(handed_out)] == batches[:handed_out]
        del running
        for saved in (state, left.state_dict()):
            resumed = loader()
            resumed.load_state_dict(saved)
            assert numbers(resumed) == batches[handed_out:]
            assert numbers(resumed) == second
            assert resumed.stats == whole.stats


@pytest.mark.parametrize("damage", [None, "odd", [1]])
def test_a_stream_that_knows_where_it_stands_takes_no_other_position(damage):
    loader = select(Knowing(Countdown(), 4), selective(1 / 2))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    assert state["stream"] == {"stream": {"at": 8}}
    with pytest.raises(sb.ConfigurationError, match=r'state\["stream"\]: a mapping is needed'):
        loader.load_state_dict(state | {"stream": damage})
    assert numbers(batches)


def test_rows_that_were_saved_on_another_device_come_to_the_model_s(monkeypatch):
    training = Training(selective(1 / 2))
    saves = []
    training.epoch(after=lambda: saves.append(training.loader.state_dict()))
    moved = []
    monkeypatch.setattr(
        "selective_backprop._batches.serialization.move_batch",
        lambda state, device: moved.append(device) or state,
    )
    training.loader.load_state_dict(saves[0])
    assert set(moved) == {torch.device("cpu")}


def test_a_sampler_with_another_number_of_generators_is_refused():
    training = Training(selective(1 / 2))
    saves = []
    training.epoch(after=lambda: saves.append(training.loader.state_dict()))
    other = Training(selective(1 / 2), sampler=RandomSampler(fixture_data()))
    with pytest.raises(sb.ConfigurationError, match=r"generators=1.*generators=0"):
        other.loader.load_state_dict(saves[0])


class Numbering(NotedSampler):
    def set_epoch(self, epoch):
        self.generator.manual_seed(epoch)


class Late(NotedSampler):
    """Makes its generator when it first draws, as Accelerate's sampler does."""

    def __init__(self, examples):
        super().__init__(examples)
        self.generator = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.generator = torch.Generator().manual_seed(self.epoch)
        return super().__iter__()


@pytest.mark.parametrize("sampler", [Numbering, Late])
def test_the_numbers_of_epochs_reach_the_sampler_of_an_epoch_that_goes_on(sampler):
    def make(seed):
        training = Training(selective(1 / 3), seed=seed, sampler=sampler(40))
        whole_epoch = training.epoch

        def epoch(*arguments, **options):
            training.loader.set_epoch(training.loader.next_epoch)
            return whole_epoch(*arguments, **options)

        training.epoch = epoch
        return training

    check_batches(make)
