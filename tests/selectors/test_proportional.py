"""Importance sampling draws with replacement, as its paper says."""

import pytest
import reference
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import selective_backprop as sb

WINDOW = sb.selectors.Context(batch_size=4, window=10)
NOTHING = sb.selectors.History(1)

# few values, so that zeros, ties and infinite ones meet
values = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0, torch.inf]) | st.floats(0, 10, width=32)
windows = st.lists(values, min_size=1, max_size=30)
seeds = st.integers(0, 2**32)


def draw(selector, scores, *, seed=0, context=WINDOW):
    generator = torch.Generator().manual_seed(seed)
    return selector.start(context).select(torch.tensor(scores), NOTHING, generator)


@given(windows, st.sampled_from([0.0, 0.25, 1.0]), seeds)
def test_rows_and_weights_are_the_papers(scores, bias, seed):
    rows, weights = draw(sb.selectors.Proportional(2.5, bias), scores, seed=seed)
    shares = reference.sampling_shares(torch.tensor(scores).tolist())
    source = torch.Generator().manual_seed(seed)
    count = WINDOW.quota(len(scores))
    tosses = torch.rand(count, generator=source, dtype=torch.float64).tolist()
    assert rows.tolist() == reference.sample_with_replacement(shares, tosses)
    expected = [reference.importance_weight(shares[row], len(scores), bias) for row in rows]
    if bias:
        assert weights.dtype == torch.float32
        assert weights.tolist() == pytest.approx(expected, rel=1e-6)
    else:
        assert weights is None


def test_rows_come_up_as_often_as_their_scores_say():
    scores = torch.tensor([0.0, 1.0, 2.0, 5.0]).repeat(2000)
    context = sb.selectors.Context(batch_size=2000, window=8000)
    rows = draw(sb.selectors.Proportional(4), scores.tolist(), context=context).rows
    hits = (rows % 4).bincount(minlength=4) / 2000
    shares = scores[:4] / 8
    assert hits[0] == 0
    assert bool(((hits - shares).abs() <= 4 * (shares * (1 - shares) / 2000).sqrt()).all())


@given(windows, seeds)
def test_candidates_that_count_for_nothing_are_never_drawn(scores, seed):
    rows = draw(sb.selectors.Proportional(), scores, seed=seed).rows.tolist()
    if max(scores) > 0:
        assert all(scores[row] > 0 for row in rows)
    if torch.inf in scores:
        assert all(scores[row] == torch.inf for row in rows)


@pytest.mark.parametrize("scores", [[0.0] * 10, [-1.0] * 10, [3.0] * 10, [torch.inf] * 10])
def test_where_no_score_stands_out_all_are_alike_and_weigh_1(scores):
    found = set()
    for seed in range(50):
        rows, weights = draw(sb.selectors.Proportional(), scores, seed=seed)
        assert weights.tolist() == [1.0] * 4
        found |= set(rows.tolist())
    assert found == set(range(10))


@given(st.lists(st.floats(0.125, 8, width=32), min_size=1, max_size=30), seeds)
def test_losses_in_proportion_to_the_scores_leave_the_weighted_mean_without_any_noise(scores, seed):
    rows, weights = draw(sb.selectors.Proportional(), scores, seed=seed)
    losses = torch.tensor(scores)
    assert float((weights * losses[rows]).mean()) == pytest.approx(float(losses.mean()), rel=1e-5)


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
def test_the_highest_toss_falls_on_the_last_candidate_of_any_score(scores):
    scores = [1.0, *scores, 0.0]
    with Loaded(1 - 2**-53):
        rows = draw(sb.selectors.Proportional(), scores).rows.tolist()
    assert set(rows) == {max(row for row, score in enumerate(scores) if score > 0)}


@given(scored)
def test_the_lowest_toss_falls_on_the_first_candidate_of_any_score(scores):
    scores = [0.0, *scores, 1.0]
    with Loaded(0.0):
        rows = draw(sb.selectors.Proportional(), scores).rows.tolist()
    assert set(rows) == {min(row for row, score in enumerate(scores) if score > 0)}


def test_the_terms_say_that_rows_may_repeat_and_weigh():
    assert sb.selectors.Proportional().terms == sb.selectors.Terms(
        1 / 3, reweights=True, replaces=True
    )
    assert sb.selectors.Proportional(2.5, bias=0).terms == sb.selectors.Terms(
        1 / 2.5, replaces=True
    )
