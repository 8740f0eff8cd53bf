"""A stream goes on where it says that it stands; any other begins its next epoch."""

import pytest
import torch
from fixture_loaders import Numbered, NumberedStream, numbers, select, selective
from torch.utils.data import DataLoader, IterableDataset

import selective_backprop as sb


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
