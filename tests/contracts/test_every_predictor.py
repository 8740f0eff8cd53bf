"""Laws that every predictor keeps. A new one needs an entry in `PREDICTORS`, and nothing else."""

import copy

import numpy as np
import pytest
from discovery import check_specification, final_classes, public_classes
from fixture_loaders import streams
from fixture_memory import NEXT, decaying, keep_newest

import selective_backprop as sb

PREDICTORS = [
    sb.scorers.Average(),
    sb.scorers.Average(decay=0, depth=1),
    sb.scorers.GaussianProcess(),
    sb.scorers.GaussianProcess(points=8, depth=2),
    sb.experimental.Crossing(),
    sb.experimental.Crossing(1 / 4, depth=2, points=8),
    sb.experimental.Crossing(1),
]
every_predictor = pytest.mark.parametrize("predictor", PREDICTORS, ids=repr)


def test_every_predictor_is_public_and_listed_here():
    own = final_classes(sb.scorers.AbstractPredictor)
    assert own == public_classes(sb.scorers.AbstractPredictor) == {*map(type, PREDICTORS)}


@every_predictor
def test_a_specification_is_final_frozen_and_compares_by_value(predictor):
    check_specification(predictor, sb.scorers.AbstractPredictor)
    assert sb.scorers.Predicted(sb.scorers.Forward(), predictor).needs.depth == predictor.depth


def some_observed(predictor, examples=60):
    """As many scores of most examples as it looks at, fewer of others, none of a few."""
    observed, _ = decaying(examples, depth=predictor.depth)
    for count in range(predictor.depth):
        observed = keep_newest(observed, slice(5 * count, 5 * count + 5), count)
    return observed


@every_predictor
def test_each_observed_example_gets_one_finite_score(predictor):
    predicted = predictor.predict(some_observed(predictor), NEXT)
    assert predicted.shape == (60,)
    assert predicted.dtype == np.float32
    assert np.isnan(predicted).nonzero()[0].tolist() == list(range(5))
    assert not np.isinf(predicted).any()


@every_predictor
@pytest.mark.parametrize("examples", [1, 20])
def test_where_nothing_was_observed_nothing_is_predicted(predictor, examples):
    nothing = sb.scorers.Ledger(examples, predictor.depth).scored.observe()
    assert np.isnan(predictor.predict(nothing, NEXT)).all()


@every_predictor
def test_predictions_repeat_and_leave_the_world_as_it_was(predictor):
    observed = some_observed(predictor)
    before = copy.deepcopy(observed)
    known = streams()
    first, second = (predictor.predict(observed, NEXT) for _ in range(2))
    assert streams() == known
    np.testing.assert_array_equal(first, second)
    for now, then in zip(observed, before, strict=True):
        np.testing.assert_array_equal(now, then)


@every_predictor
def test_an_example_is_told_by_its_scores_and_not_by_its_place(predictor):
    observed = some_observed(predictor)
    order = np.random.default_rng(0).permutation(60)
    shuffled = sb.scorers.Observations(*(column[:, order] for column in observed))
    predicted, moved = (predictor.predict(seen, NEXT) for seen in (observed, shuffled))
    np.testing.assert_allclose(moved, predicted[order], rtol=1e-3)


@every_predictor
def test_gaps_between_epochs_that_were_never_seen_are_not_guessed_at(predictor):
    observed, _ = decaying(60, depth=predictor.depth, same_epochs=True)
    usual, longer = (predictor.predict(observed, NEXT + more) for more in (0, 4))
    np.testing.assert_array_equal(usual, longer)
