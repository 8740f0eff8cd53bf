"""An epoch that goes on draws its order again or, of a stream, where that says it stands."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, NumberedStream, numbers, select, selective
from fixture_training import Training, check_batches
from torch.utils.data import DataLoader, IterableDataset, Sampler

import selective_backprop as sb


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
@pytest.mark.parametrize(
    ("kind", "workers", "strategy"),
    [
        (Budget, 0, selective(1 / 2)),
        (Budget, 1, sb.traditional()),
        (Lazy, 0, sb.traditional()),
        (Lazy, 1, selective(1 / 2)),
    ],
)
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
    with pytest.raises(sb.LoaderError, match=r"random numbers.*torch.Generator.*set_epoch\(1\)"):
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


def test_a_stream_without_a_position_begins_its_next_epoch():
    loader, again = (select(DataLoader(NumberedStream(28), 4), selective(1 / 2)) for _ in range(2))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del batches  # the epoch is left
    for saved in (state, loader.state_dict()):
        again.load_state_dict(saved)
        assert again.next_epoch == 1
        assert min(map(min, numbers(again))) < 8
