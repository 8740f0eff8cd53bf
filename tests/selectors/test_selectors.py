"""The simple selectors: everything, a random share, the highest and the lowest."""

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from unhooked import unhooked

import selective_backprop as sb

WINDOW = sb.selectors.Context(batch_size=4, window=10)
NOTHING = sb.selectors.History(1)


def select(selector, scores, *, context=WINDOW, seed=0):
    generator = torch.Generator().manual_seed(seed)
    choice = selector.start(context).select(torch.tensor(scores), NOTHING, generator)
    assert choice.weights is None
    return choice.rows.tolist()


scores = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=30)
seeds = st.integers(0, 2**32)


@given(scores)
def test_everything_is_everything(values):
    assert select(sb.selectors.Everything(), values) == list(range(len(values)))


@given(scores, seeds)
def test_an_exact_random_share_is_the_head_of_a_random_order(values, seed):
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed)).tolist()
    expected = reference.sample_uniformly(order, WINDOW.quota(len(values)))
    assert select(sb.selectors.Uniform(0.4), values, seed=seed) == expected


@given(scores, seeds)
def test_a_random_share_by_coins_is_one_coin_each(values, seed):
    source = torch.Generator().manual_seed(seed)
    tosses = torch.rand(len(values), generator=source, dtype=torch.float64).tolist()
    expected = reference.toss_coins([0.4] * len(values), tosses)
    assert select(sb.selectors.Uniform(0.4, "bernoulli"), values, seed=seed) == expected


numbers = st.lists(st.integers(0, 2) | st.integers(-50, 50), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("selector", "plain"),
    [(sb.selectors.Top(0.4), reference.top), (sb.selectors.Bottom(0.4), reference.bottom)],
)
@given(values=numbers)
def test_the_extremes_are_the_plain_rules_and_among_ties_any_will_do(selector, plain, values):
    values = list(map(float, values))
    kept, expected = select(selector, values), plain(values, WINDOW.quota(len(values)))
    assert sorted(values[row] for row in kept) == sorted(values[row] for row in expected)
    assert kept == sorted(set(kept))


def test_infinite_scores_are_extremes():
    values = [1.0, torch.inf, 2.0, -torch.inf, 3.0]
    assert select(sb.selectors.Top(0.4), values, context=sb.selectors.Context(1, 5)) == [1]
    assert select(sb.selectors.Bottom(0.4), values, context=sb.selectors.Context(1, 5)) == [3]


def test_a_rate_of_one_keeps_everything_and_is_a_float():
    for selector in (sb.selectors.Uniform(1), sb.selectors.Top(1), sb.selectors.Bottom(1)):
        assert type(selector.rate) is float
        assert select(selector, [3.0, 1.0, 2.0], context=sb.selectors.Context(3, 3)) == [0, 1, 2]


COINS = sb.selectors.Draw.BERNOULLI
LOOSE = {"promises": False}
MEAN = {"history": 7, "reweights": True} | LOOSE
PACED = {"paced": True, "confidence": True} | LOOSE
# What the laws of all selectors do not tell.
TERMS = [
    (sb.selectors.Everything(), (1.0,), {"needs_scores": False, "keeps_everything": True}),
    (sb.selectors.Percentile(3, history=5), (1 / 4,), {"history": 5}),
    (sb.selectors.Percentile(1, "bernoulli", history=5), (1 / 2, COINS), {"history": 5}),
    (sb.selectors.BelowMean(0.5, history=7), (0.75, COINS), MEAN),
    (sb.selectors.Hide(0.3, history=7), (0.7, COINS), {"history": 7} | PACED),
    (sb.selectors.Confident(0.5), (0.75, COINS), {"reweights": True, "confidence": True} | LOOSE),
]


@pytest.mark.parametrize(("selector", "shares", "options"), TERMS, ids=lambda part: repr(part))
def test_the_terms_say_what_a_selector_needs_and_promises(selector, shares, options):
    assert selector.terms == sb.selectors.Terms(*shares, **options)


def test_an_unknown_draw_is_refused_with_the_known_ones():
    message = r"draw='dice'.*'exact', 'bernoulli'"
    for kind in (sb.selectors.Uniform, sb.selectors.Percentile):
        with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
            kind(0.5, "dice")


def test_a_rule_of_ones_own_is_a_selector_that_remembers_nothing():
    def first_half(scores, history, generator):
        return sb.selectors.Choice(torch.arange(scores.shape[0] // 2), torch.full((2,), 2.0))

    selector = sb.selectors.Stateless(first_half)
    choice = selector.select(torch.zeros(4), NOTHING, torch.Generator())
    assert choice.rows.tolist() == [0, 1]
    assert choice.weights.tolist() == [2.0, 2.0]
    assert selector.state_dict() == {}
    selector.load_state_dict({})
