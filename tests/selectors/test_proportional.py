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


def draw(selector, scores, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return selector.start(WINDOW).select(torch.tensor(scores), NOTHING, generator)


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
def test_the_lowest_and_highest_toss_fall_on_the_first_and_last_candidate_of_any_score(scores):
    scores = [0.0, 1.0, *scores, 0.0]
    positive = [row for row, score in enumerate(scores) if score > 0]
    for toss, expected in ((0.0, positive[0]), (1 - 2**-53, positive[-1])):
        with Loaded(toss):
            rows = draw(sb.selectors.Proportional(), scores).rows.tolist()
        assert set(rows) == {expected}
