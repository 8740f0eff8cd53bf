"""InfoBatch, KAKURENBO and easy-skip leave out low losses, as their rules say in plain Python."""

import pytest
import reference
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import selective_backprop as sb

ANY = sb.selectors.Context(batch_size=4, window=None)
NOTHING = sb.selectors.History(1)
HIDE = sb.selectors.Hide(0.3)
EASY = [row / 1000 for row in range(100)]
seeds = st.integers(0, 2**32)


def choose(selector, scores, remembered=(), seed=0):
    """The choice of a selector, or of one at work, among scores."""
    history = sb.selectors.History(max(1, len(remembered)))
    history.file(torch.tensor(remembered))
    running = selector if isinstance(selector, sb.selectors.Paced) else selector.start(ANY)
    return running.select(torch.tensor(scores), history, torch.Generator().manual_seed(seed))


def tosses(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, generator=generator, dtype=torch.float64).tolist()


# halves, so that their sums are exact and it is certain what is below the mean
halves = st.integers(-6, 12).map(lambda number: number / 2)
some = st.lists(halves | st.just(torch.inf), min_size=1, max_size=30)


@given(some, some | st.just([]), st.sampled_from([0.0, 0.3, 0.5, 0.9]), seeds)
def test_rows_below_the_mean_and_their_weights_are_the_papers(scores, remembered, share, seed):
    mean = reference.mean_of_known(remembered)
    assume(mean is None or (mean * 2).is_integer() or abs(mean * 2 - round(mean * 2)) > 1e-3)
    expected, weights = reference.prune_below_mean(
        scores, remembered, share, tosses(len(scores), seed)
    )
    published = sb.selectors.BelowMean(share, longer_steps=True)
    below = 0 if mean is None else sum(score < mean for score in remembered)
    kept = 1 - share * below / max(1, len(remembered))
    for selector, scale in ((published, 1.0), (sb.selectors.BelowMean(share), kept)):
        choice = choose(selector, scores, remembered, seed)
        assert choice.rows.tolist() == expected
        assert choice.weights.tolist() == pytest.approx([weight * scale for weight in weights])


@pytest.mark.parametrize("remembered", [[], [torch.inf, torch.inf]])
def test_where_nothing_is_known_everything_is_kept_and_weighs_1(remembered):
    rows, weights = choose(sb.selectors.BelowMean(0.9), [1.0, 2.0, torch.inf], remembered)
    assert (rows.tolist(), weights.tolist()) == ([0, 1, 2], [1.0, 1.0, 1.0])
    assert choose(sb.selectors.Hide(0.9), [torch.inf] * 2, remembered).rows.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_where_all_losses_are_equal_none_is_below_the_mean(dtype):
    scores = torch.full((1000,), 0.1, dtype=dtype)
    history = sb.selectors.History(1000)
    history.file(scores)
    choice = sb.selectors.BelowMean(0.9).start(ANY).select(scores, history, torch.Generator())
    if dtype is not torch.float64:  # whose mean is as exact as its scores, and no more
        assert len(choice.rows) == 1000
    assert float(choice.weights.sum()) == pytest.approx(len(choice.rows), rel=0.05)


@given(
    st.lists(st.floats(-1, 4, width=32) | st.just(torch.inf), min_size=1, max_size=30),
    st.sampled_from([0.01, 0.25, 1.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
    seeds,
)
def test_rows_that_the_model_is_sure_of_and_weights_are_the_plain_rules(
    scores, floor, correction, seed
):
    odds = [reference.skip_odds(loss, floor) for loss in scores]
    rows, weights = choose(sb.selectors.Confident(floor, correction), scores, seed=seed)
    assert rows.tolist() == reference.toss_coins(odds, tosses(len(scores), seed))
    assert (weights is None) == (correction == 0)
    if correction:
        assert weights.dtype == torch.float32
        expected = [odds[row] ** -correction for row in rows]
        assert weights.tolist() == pytest.approx(expected, rel=1e-6)


def test_small_losses_keep_their_precision():
    scores = torch.full((1_000_000,), 1e-5)  # 1 - exp(-loss) in float32 would be 1.001e-5
    running = sb.selectors.Confident(1e-9).start(ANY)
    weights = running.select(scores, NOTHING, torch.Generator().manual_seed(0)).weights
    assert len(weights)
    assert weights.tolist() == pytest.approx([2e-5**-0.5] * len(weights), rel=1e-5)


def test_what_was_given_up_is_not_kept_whatever_the_floor():
    assert choose(sb.selectors.Confident(1.0), [-torch.inf, 0.0, -torch.inf]).rows.tolist() == [1]


losses = st.floats(0, 2, width=32)


@given(
    st.lists(losses, max_size=10),
    st.lists(losses, min_size=1, max_size=30, unique=True),
    st.sampled_from([0.1, 0.3, 0.5, 0.9]),
    st.sampled_from([0.5, 0.7, 0.95]),
    seeds,
)
def test_what_is_hidden_is_the_papers_whatever_the_generator(new, remembered, share, sure, seed):
    scores = [*remembered, *new, torch.inf]
    choice = choose(sb.selectors.Hide(share, confidence=sure), scores, remembered, seed)
    assert choice.weights is None
    assert choice.rows.tolist() == reference.shown(scores, remembered, share, sure)


def test_no_more_than_the_share_is_hidden_on_average_where_losses_are_equal():
    scores = [0.0] * 600 + [0.01] * 400  # underflowed, as the losses of what is long learned do
    shown = [choose(HIDE, scores, scores, seed).rows for seed in range(20)]
    error = (600 * 0.5 * 0.5 / 20) ** 0.5
    assert abs(sum(1000 - len(rows) for rows in shown) / 20 - 300) <= 4 * error
    assert set(range(600, 1000)) <= set(shown[0].tolist())
    fitting = [0.0] * 3 + [0.1 + row / 100 for row in range(7)]
    assert choose(HIDE, fitting, fitting).rows.tolist() == list(range(3, 10))


def test_the_share_falls_as_training_goes_on():
    running = HIDE.start(ANY)
    hidden = {0.0: 30, 0.29: 30, 0.3: 24, 0.59: 24, 0.6: 18, 0.79: 18, 0.8: 12, 1.0: 12}
    for progress, count in hidden.items():
        running.begin(progress)
        other = HIDE.start(ANY)
        other.load_state_dict(running.state_dict())
        for each in (running, other):
            assert choose(each, EASY, EASY).rows.tolist() == list(range(count, 100))
