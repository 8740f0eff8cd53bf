"""KAKURENBO hides the lowest losses that the model is sure of, and fewer of them with time."""

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb

ANY = sb.selectors.Context(batch_size=4, window=None)
HIDE = sb.selectors.Hide(0.3)
losses = st.floats(0, 2, width=32)


def shown(running, scores, remembered, seed=0):
    history = sb.selectors.History(max(1, len(remembered)))
    history.file(torch.tensor(remembered))
    generator = torch.Generator().manual_seed(seed)
    choice = running.select(torch.tensor(scores), history, generator)
    assert choice.weights is None
    return choice.rows.tolist()


@given(
    st.lists(losses, max_size=10),
    st.lists(losses, min_size=1, max_size=30, unique=True),
    st.sampled_from([0.1, 0.3, 0.5, 0.9]),
    st.sampled_from([0.5, 0.7, 0.95]),
    st.integers(0, 2**32),
)
def test_what_is_shown_is_the_papers_whatever_the_generator(new, remembered, share, sure, seed):
    scores = [*remembered, *new, torch.inf]
    running = sb.selectors.Hide(share, confidence=sure).start(ANY)
    assert shown(running, scores, remembered, seed) == reference.shown(
        scores, remembered, share, sure
    )


@pytest.mark.parametrize("confidence", [0.5, 0.99])
def test_the_guard_is_a_right_prediction_made_with_confidence(confidence):
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(400, 3, generator=generator)).tolist()
    targets = torch.randint(3, (400,), generator=generator).tolist()
    scores, unsure = [], []
    for row, (row_logits, target) in enumerate(zip(logits, targets, strict=True)):
        scores.append(reference.cross_entropy(row_logits, target))
        odds = reference.softmax(row_logits)
        if odds.index(max(odds)) != target or max(odds) < confidence:
            unsure.append(row)
    assert 0 < len(unsure) < 400
    # all are among the lowest, so that the guard alone decides
    running = sb.selectors.Hide(0.9, confidence=confidence).start(ANY)
    assert shown(running, scores, remembered=[100.0]) == unsure


def test_no_more_than_the_share_is_hidden_on_average_where_losses_are_equal():
    scores = [0.0] * 600 + [0.01] * 400  # underflowed, as the losses of what is long learned do
    hidden = [1000 - len(shown(HIDE.start(ANY), scores, scores, seed)) for seed in range(20)]
    error = (600 * 0.5 * 0.5 / 20) ** 0.5
    assert abs(sum(hidden) / 20 - 300) <= 4 * error
    assert set(range(600, 1000)) <= set(shown(HIDE.start(ANY), scores, scores))


def test_equal_losses_that_all_fit_into_the_share_are_all_hidden():
    scores = [0.0] * 3 + [0.1 + row / 100 for row in range(7)]
    assert shown(HIDE.start(ANY), scores, scores) == list(range(3, 10))


def test_where_nothing_is_known_nothing_is_hidden():
    assert shown(sb.selectors.Hide(0.9).start(ANY), [0.0, 0.1], []) == [0, 1]
    assert shown(sb.selectors.Hide(0.9).start(ANY), [torch.inf] * 2, [torch.inf] * 2) == [0, 1]


EASY = [row / 1000 for row in range(100)]


def test_the_share_falls_as_training_goes_on():
    running = HIDE.start(ANY)
    assert isinstance(running, sb.selectors.Paced)
    hidden = {0.0: 30, 0.29: 30, 0.3: 24, 0.59: 24, 0.6: 18, 0.79: 18, 0.8: 12, 1.0: 12}
    for progress, count in hidden.items():
        running.begin(progress)
        assert shown(running, EASY, EASY) == list(range(count, 100))


def test_how_far_training_is_survives_a_file(tmp_path):
    running, other = HIDE.start(ANY), HIDE.start(ANY)
    running.begin(0.7)
    torch.save(running.state_dict(), tmp_path / "state")
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert len(shown(other, EASY, EASY)) == 82
