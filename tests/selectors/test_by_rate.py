"""Random shares, extremes, percentiles and importance sampling choose as their papers say."""

import pytest
import reference
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import selective_backprop as sb

WINDOW = sb.selectors.Context(batch_size=4, window=10)
NOTHING = sb.selectors.History(1)
BATCH = 52  # so that a window of candidates is a whole number for every beta
scores = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=30)
seeds = st.integers(0, 2**32)


def draw(selector, scores, *, context=WINDOW, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return selector.start(context).select(torch.tensor(scores), NOTHING, generator)


def select(selector, scores, **options):
    choice = draw(selector, scores, **options)
    assert choice.weights is None
    return choice.rows.tolist()


def tosses(count, generator):
    return torch.rand(count, generator=generator, dtype=torch.float64).tolist()


def start(beta, draw, *, batch=BATCH, window=None):
    """The running selector in a training with the windows that the loader would make."""
    window = round(batch * (beta + 1)) if window is None else window
    context = sb.selectors.Context(batch, window if draw == "exact" else None)
    return sb.selectors.Percentile(beta, draw).start(context), window


# Measured: 0.0055 with beta 9 and windows of 130, the others less. The last seven are of training
# batches of 16, 8 and 4, as is documented.
BOUNDS = [(0, 128, 0.0), (1, 128, 0.01), (4, 130, 0.01), (9, 130, 0.01), (2, 384, 0.0025)]
BOUNDS += [(beta, 16 * (beta + 1), 0.01) for beta in (1, 2, 3)]
BOUNDS += [(2, 8 * 3, 0.02), (3, 8 * 4, 0.02), (2, 4 * 3, 0.06), (3, 4 * 4, 0.06)]


@pytest.mark.parametrize(("beta", "window", "bound"), BOUNDS)
def test_exact_odds_follow_the_papers_in_every_tenth_of_the_losses(beta, window, bound):
    generator = torch.Generator().manual_seed(0)
    history = sb.selectors.History(1024)
    history.file(torch.rand(1024, generator=generator))
    difference, losses_seen = torch.zeros(10, dtype=torch.float64), torch.zeros(10)
    for _ in range(600):
        losses = torch.rand(window, generator=generator)
        history.file(losses)
        papers = history.percentiles(losses).pow(beta)
        odds = sb.selectors.tilted_odds(papers, round(window / (beta + 1)))
        tenth = (losses * 10).long()
        difference.index_add_(0, tenth, odds - papers)
        losses_seen += tenth.bincount(minlength=10)
    assert float((difference / losses_seen).abs().max()) <= bound


tied_losses = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=12)
streams = st.lists(tied_losses, min_size=1, max_size=6)


@given(streams, st.integers(1, 20), st.sampled_from([0.0, 0.5, 2.0]), st.integers(0, 2**32))
def test_bernoulli_draws_are_the_papers_loss_by_loss(stream, capacity, beta, seed):
    selector, _ = start(beta, "bernoulli")
    history, plain = sb.selectors.History(capacity), reference.LossHistory(capacity)
    ours, theirs = (torch.Generator().manual_seed(seed) for _ in range(2))
    for losses in stream:
        history.file(torch.tensor(losses))
        wanted = reference.selection_probabilities(plain, losses, beta)
        coins = tosses(len(losses), theirs)
        rows = selector.select(torch.tensor(losses), history, ours).rows
        assert rows.tolist() == reference.toss_coins(wanted, coins)


def at_the_tilts_limit(wanted, count):
    """Whether rounding decides if these odds are tilted or scaled."""
    room = sum(p * (1 - p) for p in wanted)
    return abs(abs(count - sum(wanted)) - room) < 1e-9 < room


@given(streams, st.integers(1, 20), st.sampled_from([0.0, 0.5, 2.0]), st.integers(0, 2**32))
def test_exact_draws_are_systematic_samples_with_the_papers_odds(stream, capacity, beta, seed):
    window = max(map(len, stream))
    selector, _ = start(beta, "exact", batch=max(1, window // 3), window=window)
    history, plain = sb.selectors.History(capacity), reference.LossHistory(capacity)
    ours, theirs = (torch.Generator().manual_seed(seed) for _ in range(2))
    for losses in stream:
        history.file(torch.tensor(losses))
        count = sb.selectors.Context(max(1, window // 3), window).quota(len(losses))
        wanted = reference.selection_probabilities(plain, losses, beta)
        assume(not at_the_tilts_limit(wanted, count))
        order = torch.randperm(len(losses), generator=theirs).tolist()
        (offset,) = tosses(1, theirs)
        odds = reference.tilted_odds(wanted, count)
        expected = reference.sample_systematically(odds, order, offset)
        rows = selector.select(torch.tensor(losses), history, ours).rows
        assert rows.tolist() == expected


# few values, so that zeros, ties and infinite ones meet
values = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0, torch.inf]) | st.floats(0, 10, width=32)
windows = st.lists(values, min_size=1, max_size=30)


@given(windows, st.sampled_from([0.0, 0.25, 1.0]), seeds)
def test_rows_and_weights_are_the_papers(scores, bias, seed):
    rows, weights = draw(sb.selectors.Proportional(2.5, bias), scores, seed=seed)
    shares = reference.sampling_shares(torch.tensor(scores).tolist())
    coins = tosses(WINDOW.quota(len(scores)), torch.Generator().manual_seed(seed))
    assert rows.tolist() == reference.sample_with_replacement(shares, coins)
    expected = [reference.importance_weight(shares[row], len(scores), bias) for row in rows]
    assert (weights is None) == (bias == 0)
    if bias:
        assert weights.dtype == torch.float32
        assert weights.tolist() == pytest.approx(expected, rel=1e-6)


def test_scores_beyond_single_precision_s_sums_are_drawn_in_proportion():
    scores = [1e8] + [1.0] * 9  # in float32 the others would be lost in the sum
    shares = torch.tensor(scores, dtype=torch.float64) / (1e8 + 9)
    for seed in range(20):
        rows, weights = draw(sb.selectors.Proportional(), scores, seed=seed)
        assert weights.double().tolist() == pytest.approx((10 * shares[rows]).reciprocal().tolist())


class Loaded(TorchDispatchMode):
    """Let every random number be the same one."""

    def __init__(self, toss):
        super().__init__()
        self.toss = toss

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        return found.fill_(self.toss) if function.overloadpacket is torch.ops.aten.rand else found


scored = st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0.125, 10, width=32), max_size=30)


@given(scored)
@example([1.0] * 9)  # ten tenths are less than 1
def test_the_lowest_and_highest_toss_fall_on_the_first_and_last_candidate_of_any_score(scores):
    scores = [0.0, 1.0, *scores, 0.0]
    positive = [row for row, score in enumerate(scores) if score > 0]
    for toss, expected in ((0.0, positive[0]), (1 - 2**-53, positive[-1])):
        with Loaded(toss):
            rows = draw(sb.selectors.Proportional(), scores).rows.tolist()
        assert set(rows) == {expected}


@given(scores, seeds)
def test_an_exact_random_share_is_the_head_of_a_random_order(values, seed):
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed)).tolist()
    expected = reference.sample_uniformly(order, WINDOW.quota(len(values)))
    assert select(sb.selectors.Uniform(0.4), values, seed=seed) == expected


@given(scores, seeds)
def test_a_random_share_by_coins_is_one_coin_each(values, seed):
    coins = tosses(len(values), torch.Generator().manual_seed(seed))
    expected = reference.toss_coins([0.4] * len(values), coins)
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


@pytest.mark.parametrize(
    "selector",
    [sb.selectors.BelowMean(0.5), sb.selectors.Hide(0.25), sb.selectors.Confident(0.5)],
    ids=repr,
)
def test_the_rate_of_a_rule_that_promises_none_is_a_typical_share(selector):
    assert selector.terms.rate == 0.75
    assert selector.terms.draw is sb.selectors.Draw.BERNOULLI
