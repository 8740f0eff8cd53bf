"""What the model fits already is not even loaded."""

import itertools

import torch
from fixture_cases import share_of_cases
from fixture_loaders import NotedSampler, Numbered
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb

EXAMPLES = 48


def train(strategy, losses):
    """Record `losses[epoch][example]`; return what was trained on in the last epoch, and the order.

    Nothing else is loaded, and nothing scored.
    """
    data, sampler = Numbered(EXAMPLES), NotedSampler(EXAMPLES)
    loader = DataLoader(data, 6, sampler=sampler)
    selecting = sb.SelectiveLoader(loader, nn.Identity(), None, strategy, with_selection=True)
    for known in losses:
        before, seen = data.reads.clone(), []
        for (_, numbers), selection in selecting:
            seen += numbers.tolist()
            selecting.record(selection, known[numbers])
        assert len(seen) == len(set(seen)) == int((data.reads - before).sum())
    assert selecting.stats.scored == 0
    return set(seen), sampler.passes[-1]


def fell_least(fell, order, window):
    """Of each window, the six whose losses have fallen least."""
    parts = (order[start : start + window] for start in range(0, EXAMPLES, window))
    kept = (sorted(dealt, key=lambda number: float(fell[number]))[:6] for dealt in parts)
    return {*itertools.chain(*kept)}


@share_of_cases(1 / 3)
@given(seed=st.integers(0, 99), rate=st.sampled_from([1 / 4, 1 / 2, 3 / 4]))
def test_of_each_window_the_losses_that_fell_furthest_are_dropped_before_loading(seed, rate):
    first, second = torch.rand(2, EXAMPLES, generator=torch.Generator().manual_seed(seed))
    strategy = sb.tail_sft(rate, schedule=sb.Schedule(warmup_epochs=2))
    trained, order = train(strategy, [first, second, second])
    assert trained == fell_least(first - second, order, round(6 / rate))
    trained, order = train(sb.tail_sft(rate, initial=first), [second, second])
    assert trained == fell_least(first - second, order, round(6 / rate))
