"""How many batches an epoch will yield: known exactly, or said to be unknown."""

import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, NumberedStream, length, select, selective
from fixture_training import STRATEGIES, Training
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler

import selective_backprop as sb


@pytest.mark.parametrize("leftovers", ["carry", "flush", "drop"])
@pytest.mark.parametrize(
    "strategy",
    [
        sb.traditional(),
        sb.random_backprop(1 / 3),
        selective(1 / 3, warmup_epochs=2),
        selective(start=0.3, end=0.7),
    ],
)
def test_the_lengths_of_all_epochs_are_known_where_draws_are_exact(strategy, leftovers):
    loader = select(DataLoader(Numbered(50), 4), strategy, leftovers=leftovers, epochs=5)
    expected = loader.lengths(5)
    for left in range(5, 0, -1):
        assert loader.lengths(left) == expected[-left:]
        assert len(loader) == sum(1 for _ in loader) == expected[-left]


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (selective(draw="bernoulli", warmup_epochs=1), {}),
        (sb.random_backprop(1 / 3, draw="bernoulli"), {}),
        (sb.auto(), {"drop_last": True}),
        (sb.auto(), {"sampler": RandomSampler(range(50), replacement=True)}),
        (sb.easy_skip(), {}),  # selection begins within an epoch
    ],
)
def test_a_length_that_later_epochs_have_not_is_refused_before_training(strategy, options):
    loader = DataLoader(Numbered(50), 4, **options)
    selecting = select(loader, strategy, epochs=5, with_selection=True)
    with pytest.raises(TypeError, match=rf"^{strategy.name} .*CandidateScheduler"):
        len(selecting)
    assert next(iter(selecting)) is not None


COINS = {
    "auto": sb.auto(),
    "infobatch": sb.infobatch(),
    "easy-skip": sb.easy_skip(),
    "kakurenbo": sb.kakurenbo(),
    "sampler": sb.auto(),
    "subset": sb.auto().within(sb.Subset(torch.arange(0, 83, 3), 83)),
}


@pytest.mark.parametrize(
    ("name", "leftovers"),
    [*((name, "carry") for name in COINS), ("auto", "flush"), ("infobatch", "drop")],
)
def test_what_is_drawn_by_remembered_losses_has_a_length_in_every_epoch(name, leftovers):
    sampler = SubsetRandomSampler(range(40, 83)) if name == "sampler" else RandomSampler(range(83))
    loader = DataLoader(Numbered(83), 4, sampler=sampler)
    options = {"leftovers": leftovers, "epochs": 24, "with_selection": True}
    selecting = select(loader, COINS[name], **options)
    lengths = []
    for _ in range(24):
        foreseen, count = len(selecting), 0
        for _, selection in selecting:
            count += 1
            assert len(selecting) == foreseen
            selecting.record(selection, 0.7 * torch.rand(len(selection.indices)), targets=())
        assert count == foreseen
        lengths.append(count)
    assert min(lengths) < max(lengths)


def test_the_length_of_an_epoch_that_is_to_go_on_is_that_of_its_beginning():
    def make():
        return select(DataLoader(Numbered(203), 4, shuffle=True), sb.auto(), with_selection=True)

    def train(loader, batches):
        for _ in range(batches):
            _, selection = next(epoch)
            loader.record(selection, torch.rand(len(selection.indices)) ** 6, targets=())

    loader, saves = make(), []
    for _ in range(3):
        foreseen, epoch = len(loader), iter(loader)
        saves.append((loader.state_dict(), foreseen))
        train(loader, foreseen)
        assert next(epoch, None) is None
    foreseen, epoch = len(loader), iter(loader)
    train(loader, 5)
    again, now = make(), (loader.state_dict(), foreseen)
    for state, expected in (now, *saves, now):
        again.load_state_dict(state)
        assert len(again) == expected
    epoch = iter(again)
    train(again, foreseen - 5)
    assert next(epoch, None) is None
    other = make()
    other.load_state_dict(loader.state_dict())
    other.set_epoch(20)  # when every loss is too old
    assert len(other) == len(list(other)) != foreseen


@pytest.mark.parametrize("name", STRATEGIES)
def test_asking_for_the_length_changes_nothing(name):
    def make():
        return Training(STRATEGIES[name], sampler=RandomSampler(range(40)), trains=2)

    training = make()
    expected = [training.epoch() for _ in range(5)]
    training = make()
    for batches in expected:
        length(training.loader)
        assert training.epoch(after=lambda: length(training.loader)) == batches


def test_the_length_of_a_stream_is_what_the_stream_says():
    class Sized(NumberedStream):
        def __len__(self) -> int:
            return self.examples

    assert len(select(DataLoader(Sized(10), 4), sb.traditional())) == 3
    with pytest.raises(TypeError):
        len(select(DataLoader(NumberedStream(10), 4), sb.traditional()))
    with pytest.raises(TypeError, match="sizes"):
        len(select(DataLoader(Sized(10), 4), selective()))


def test_the_first_of_the_lengths_is_that_of_the_epoch_that_runs_or_is_to_go_on():
    def make():
        loader = DataLoader(Numbered(60), 20, sampler=NotedSampler(60))
        return select(loader, selective(1 / 2), batch_size=4)

    selecting, resumed = make(), make()
    expected = selecting.lengths(3)
    assert expected == [7, 8, 7]
    for came, _ in enumerate(selecting, start=1):
        assert selecting.lengths(3) == expected
        if came == 2:
            resumed.load_state_dict(selecting.state_dict())
    assert resumed.lengths(3) == expected
    assert [len(list(each)) for each in (resumed, resumed, selecting, selecting)] == [5, 8, 8, 7]
