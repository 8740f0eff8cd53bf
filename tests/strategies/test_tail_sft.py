"""What the model fits already is not even loaded, and comes back."""

import pytest
import torch
from fixture_cases import share_of_cases
from fixture_loaders import NotedSampler, Numbered
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb

EXAMPLES = 48
TWICE = sb.Schedule(warmup_epochs=2)


def train(strategy, losses, *, batch=6):
    """Record `losses[epoch][example]`; return what was trained on, what was read, and orders."""
    data, sampler = Numbered(EXAMPLES), NotedSampler(EXAMPLES)
    loader = DataLoader(data, batch, sampler=sampler)
    selecting = sb.SelectiveLoader(loader, nn.Identity(), None, strategy, with_selection=True)
    trained, reads = [], []
    for known in losses:
        before, seen = data.reads.clone(), []
        for (_, numbers), selection in selecting:
            seen += numbers.tolist()
            selecting.record(selection, known[numbers])
        trained.append(set(seen))
        reads.append(int((data.reads - before).sum()))
        assert len(seen) == len(trained[-1]) == reads[-1]
    assert selecting.stats.scored == 0
    return trained, reads, sampler.passes


def random_losses(epochs, seed):
    return torch.rand(epochs, EXAMPLES, generator=torch.Generator().manual_seed(seed))


def fell_least(fell, order, window, kept):
    """Of each window, those whose losses have fallen least."""
    chosen = set()
    for start in range(0, EXAMPLES, window):
        dealt = order[start : start + window]
        chosen |= set(sorted(dealt, key=lambda number: float(fell[number]))[:kept])
    return chosen


@share_of_cases(1 / 3)
@given(seed=st.integers(0, 99), rate=st.sampled_from([1 / 4, 1 / 2, 3 / 4]))
def test_of_each_window_the_losses_that_fell_furthest_are_dropped_before_loading(seed, rate):
    first, second = random_losses(2, seed)
    strategy = sb.tail_sft(rate, schedule=TWICE)
    trained, reads, orders = train(strategy, [first, second, second])
    assert trained[0] == trained[1] == set(range(EXAMPLES))
    assert trained[2] == fell_least(first - second, orders[2], round(6 / rate), 6)
    assert reads == [EXAMPLES, EXAMPLES, EXAMPLES * rate]


def test_losses_of_the_model_before_training_take_the_place_of_first_losses():
    initial, losses = random_losses(2, 7)
    trained, reads, orders = train(sb.tail_sft(initial=initial), [losses, losses])
    assert trained[1] == fell_least(initial - losses, orders[1], 12, 6)
    assert reads == [EXAMPLES, EXAMPLES / 2]


@pytest.mark.parametrize(("max_age", "back"), [(1, 3), (2, 4), (None, 7)])
def test_what_is_dropped_comes_back_when_its_loss_is_too_old(max_age, back):
    first, later = torch.ones(EXAMPLES), torch.ones(EXAMPLES)
    later[::2] = 0.0
    strategy = sb.tail_sft(max_age=max_age, schedule=TWICE)
    trained, *_ = train(strategy, [first, *[later] * 5], batch=24)
    easy = set(range(0, EXAMPLES, 2))
    for each in trained[2:back]:
        assert not each & easy
    assert all(each == easy for each in trained[back : back + 1])


def test_initial_losses_of_another_data_set_are_refused_before_training():
    with pytest.raises(sb.ConfigurationError, match=f"of 5 examples.* {EXAMPLES}"):
        train(sb.tail_sft(initial=torch.ones(5)), [])
