"""The famous methods are the combinations that they are said to be, and tail-sft is run as one."""

import dataclasses
import itertools

import pytest
import torch
from discovery import strategies
from fixture_cases import share_of_cases
from fixture_loaders import NotedSampler, Numbered
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.scorers import Average, Forward, Predicted, Recorded, Stale
from selective_backprop.selectors import (
    BelowMean,
    Bottom,
    Confident,
    Everything,
    Hide,
    Percentile,
    Proportional,
    Top,
    Uniform,
)
from selective_backprop.strategies._auto.rule import LearnedGate, Unlearned

SUBSET = sb.Subset(torch.tensor([0, 2]), 4)
LATER, FIRST = sb.Schedule(2), sb.Schedule(warmup_epochs=1)
FORWARD, NORMS = Forward(), Forward("error-norm")
REFERENCE, EXCESS = sb.scorers.ReferenceLosses(torch.ones(4)), sb.scorers.Excess
GATED, SMALL = sb.Schedule(gate=sb.VarianceGate()), (nn.Identity, torch.optim.Adam)
PERCENTILE, OTHER_DRAW = Percentile(2), Percentile(2, "bernoulli", 9)
OTHERS = {"draw": "bernoulli", "history": 9, "schedule": LATER}
GIVEN = {"scorer": NORMS, "schedule": LATER}

# Each method by the parts that it consists of, by default and with its options.
COMBINATIONS = [
    (sb.traditional(), None, Everything()),
    (sb.random_backprop(1 / 3), None, Uniform(1 / 3), sb.Schedule()),
    (sb.random_scored(0.5), FORWARD, Uniform(0.5)),
    (sb.random_scored(0.5, draw="bernoulli", **GIVEN), NORMS, Uniform(0.5, "bernoulli"), LATER),
    (sb.selective_backprop(beta=2), FORWARD, Percentile(2, "exact", 1024), FIRST),
    (
        sb.selective_backprop(
            **{"beta": 3, "draw": "bernoulli", "history": 7, "scorer": NORMS},
            **{"warmup_epochs": 2, "start": 0.1, "end": 0.9},
        ),
        *(NORMS, Percentile(3, "bernoulli", 7), sb.Schedule(2, 0.1, 0.9)),
    ),
    (sb.top_k(0.5), FORWARD, Top(0.5)),
    (sb.top_k(0.5, **GIVEN), NORMS, Top(0.5), LATER),
    (sb.low_k(0.5), FORWARD, Bottom(0.5)),
    (sb.low_k(0.5, **GIVEN), NORMS, Bottom(0.5), LATER),
    (sb.pruned(SUBSET), None, Everything(), sb.Schedule(), SUBSET),
    (sb.stale_sb(1 / 3), Stale(FORWARD, 3), PERCENTILE, FIRST),
    (
        sb.stale_sb(1 / 3, epochs=4, scorer=NORMS, spread=True, **OTHERS),
        *(Stale(NORMS, 4, True), OTHER_DRAW, LATER),
    ),
    (sb.predicted_sb(1 / 3), Predicted(FORWARD, Average(), 3), PERCENTILE, FIRST),
    (
        sb.predicted_sb(1 / 3, predictor=Average(0.1), epochs=5, **OTHERS),
        *(Predicted(FORWARD, Average(0.1), 5), OTHER_DRAW, LATER),
    ),
    (sb.recorded_sb(1 / 3), Recorded(), PERCENTILE, FIRST),
    (
        sb.recorded_sb(1 / 3, max_age=3, draw="bernoulli", schedule=LATER),
        *(Recorded(3), Percentile(2, "bernoulli"), LATER),
    ),
    (sb.proxy_sb(*SMALL, rate=1 / 3), sb.scorers.Proxy(*SMALL), PERCENTILE, FIRST),
    (sb.diet_sb(SUBSET, 1 / 3), FORWARD, PERCENTILE, FIRST, SUBSET),
    (sb.kath18(), NORMS, Proportional(3.0, 1.0), GATED),
    (
        sb.kath18(2.0, measure="loss", bias=0.0, schedule=LATER),
        *(FORWARD, Proportional(2.0, 0.0), LATER),
    ),
    (sb.infobatch(), Recorded(), BelowMean(0.5, True), sb.Schedule(end=0.875)),
    (
        sb.infobatch(0.3, longer_steps=False, schedule=LATER),
        *(Recorded(), BelowMean(0.3, False), LATER),
    ),
    (sb.kakurenbo(), Recorded(rescore=FORWARD), Hide(0.3, 0.7), FIRST),
    (sb.kakurenbo(0.2, confidence=0.6, **GIVEN), Recorded(rescore=NORMS), Hide(0.2, 0.6), LATER),
    (sb.easy_skip(), Recorded(4), Confident(0.25), sb.Schedule(0, 0.25, 5 / 6)),
    (sb.easy_skip(0.5, schedule=LATER), Recorded(4), Confident(0.5), LATER),
    (sb.auto(), Unlearned(max_age=10, fades=8.0), Confident(0.1, 0.0), FIRST),
    (sb.auto(stream=True), FORWARD, Confident(0.1, 0.0), sb.Schedule(gate=LearnedGate())),
    (sb.auto(stream=True, schedule=LATER), FORWARD, Confident(0.1, 0.0), LATER),
    (sb.rho_loss(torch.ones(4), 0.5), EXCESS(REFERENCE, FORWARD), Top(0.5)),
    (sb.tail_sft(), EXCESS(None, Recorded(4)), Top(0.5), FIRST),
    (
        sb.tail_sft(0.25, initial=torch.ones(4), max_age=2, schedule=LATER),
        *(EXCESS(REFERENCE, Recorded(2)), Top(0.25), LATER),
    ),
]


@pytest.mark.parametrize("method", COMBINATIONS, ids=lambda method: method[0].name)
def test_a_named_method_is_its_combination(method):
    strategy, *parts = method
    assert strategy == sb.Strategy(strategy.name, *parts)


def test_every_method_is_among_these_combinations_by_its_name():
    assert {method.name for method, *_ in COMBINATIONS} == {
        n.replace("_", "-") for n in strategies()
    }


def test_a_strategy_for_a_part_of_the_data_set_differs_in_that_alone():
    strategy = sb.top_k(0.5)
    assert strategy.within(SUBSET) == sb.Strategy("top-k", FORWARD, Top(0.5), subset=SUBSET)
    assert strategy.subset is None
    for subset in (torch.arange(99), list(range(99)), 0.5):
        with unhooked(), pytest.raises(sb.ConfigurationError, match=r"Subset.* sb\.Sub") as found:
            strategy.within(subset)
        assert len(str(found.value)) < 200


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((Forward, Top(0.5)), r"no scorer.*Forward\(\)"),
        ((FORWARD, Top), "no selector.*Percentile"),
        ((FORWARD, None), "selector=None"),
        ((Top(0.5), FORWARD), "is no scorer"),
        ((FORWARD, Top(0.5), None), "schedule=None"),
        ((FORWARD, Top(0.5), sb.Schedule), "is no Schedule"),
        ((None, Percentile(1)), "needs a scorer"),
        ((None, Top(0.5)), "needs a scorer"),
        ((Stale(FORWARD), Everything()), "keeps everything"),
        ((Recorded(), Everything()), "keeps everything"),
    ],
)
def test_parts_that_are_something_else_are_refused(parts, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.Strategy("x", *parts)


def test_rate_and_beta_are_one_knob_and_strategies_compare_by_value():
    for rate, beta in [(1.0, 0), (1 / 2, 1), (1 / 3, 2), (1 / 4, 3), (0.1, 9)]:
        by_rate, by_beta = sb.selective_backprop(rate), sb.selective_backprop(beta=beta)
        assert by_rate.selector.beta == pytest.approx(beta)
        assert by_beta.selector.terms.rate == pytest.approx(rate)
    one, other = sb.selective_backprop(beta=1), sb.selective_backprop(rate=0.5)
    assert (one, hash(one)) == (other, hash(other))
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "other"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sb.selective_backprop(), "neither of rate and beta"),
        (lambda: sb.selective_backprop(rate=0.5, beta=1.0), "both of rate and beta"),
        (lambda: sb.kath18(measure="size"), "measure='size'"),
        (lambda: sb.predicted_sb(0.5, predictor=None), "predictor=None"),
        (lambda: sb.rho_loss(torch.ones(2, 2), 0.5), "reference losses must be"),
        (lambda: sb.rho_loss(None, 0.5), "reference=None"),
        (lambda: sb.pruned(None), "subset=None"),
        (lambda: sb.diet_sb(None, rate=1 / 3), "subset=None"),
        (lambda: sb.tail_sft(initial=torch.ones(2, 2)), "reference losses must be"),
        (lambda: sb.tail_sft(initial=[1.0, 2.0]), r"initial=\[1.0, 2.0\]"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_the_method(make, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        make()


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
            selecting.record(selection, known[numbers], targets=())
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
