"""A logistic regression tells which scores will be among the highest."""

import numpy as np
import pytest
import reference
from fixture_memory import NEXT, decaying, keep_newest

import selective_backprop as sb


def share_ranked_right(told, crossed):
    """Of all pairs of an example that crosses and one that does not: the area under the curve."""
    above = told[crossed][:, None] - told[~crossed][None]
    return (above > 0).mean() + (above == 0).mean() / 2


def among_the_highest(scores, rate):
    return scores >= np.quantile(scores, 1 - rate)


def crowded(seed=0):
    """Scores whose falls overtake one another, so that the last one alone misleads."""
    chance = np.random.default_rng(seed)
    starts, slopes = chance.uniform(4, 5, 1000), chance.uniform(0, 1, 1000)
    epochs = np.repeat([[12], [9], [6]], 1000, axis=1)
    scores = starts - slopes * epochs / 6 + chance.normal(0, 0.02, (3, 1000))
    observed = sb.scorers.Observations(scores.astype(np.float32), epochs.astype(np.int32))
    return observed, starts - slopes * NEXT / 6


@pytest.mark.parametrize("rate", [1 / 4, 1 / 2])
def test_what_will_cross_is_ranked_above_the_rest(rate):
    observed, truth = crowded()
    crosses = among_the_highest(truth, rate)
    told = sb.experimental.Crossing(rate).predict(observed, NEXT)
    last = observed.scores[0]
    missed = 1 - share_ranked_right(told, crosses)
    assert missed < 0.6 * (1 - share_ranked_right(last, crosses))


def test_probabilities_are_as_often_right_as_they_say():
    observed, truth = crowded()
    told = sb.experimental.Crossing(1 / 3).predict(observed, NEXT)
    crosses = among_the_highest(truth, 1 / 3)
    assert told.mean() == pytest.approx(1 / 3, abs=0.02)
    for low, high in ((0, 0.2), (0.2, 0.8), (0.8, 1)):
        those = (told >= low) & (told < high)
        assert those.sum() > 20
        assert crosses[those].mean() == pytest.approx(told[those].mean(), abs=0.12)


@pytest.mark.parametrize("rate", [1 / 4, 1 / 2])
@pytest.mark.parametrize("same_epochs", [False, True])
@pytest.mark.parametrize("depth", [2, 3])
def test_probabilities_are_those_of_the_plain_twin(rate, same_epochs, depth):
    observed, _ = decaying(40, depth=depth, noise=0.5, same_epochs=same_epochs)
    wanted = reference.crossing_probabilities(observed.scores.T, observed.epochs.T, NEXT, rate)
    told = sb.experimental.Crossing(rate, depth=depth).predict(observed, NEXT)
    np.testing.assert_allclose(told, wanted, atol=2e-3)


def test_a_part_of_the_examples_teaches_about_as_much():
    observed, truth = crowded()
    crosses = among_the_highest(truth, 1 / 4)
    all_of_them, some = (
        share_ranked_right(
            sb.experimental.Crossing(1 / 4, points=points).predict(observed, NEXT), crosses
        )
        for points in (1000, 100)
    )
    assert some == pytest.approx(all_of_them, abs=0.02)


def test_only_ranks_count():
    observed, _ = crowded()
    bent = sb.scorers.Observations(observed.scores**3, observed.epochs)
    predictor = sb.experimental.Crossing(1 / 4)
    assert predictor.predict(bent, NEXT).tolist() == predictor.predict(observed, NEXT).tolist()


def test_an_example_with_one_score_lies_between_those_that_fell_and_those_that_rose():
    observed, _ = crowded()
    scores, epochs = (column.copy() for column in observed)
    scores[:, :3] = scores[:, 500:501]  # three of the same history, of which one is forgotten
    scores[1, 1], scores[1, 2] = scores[1].max(), scores[1].min()
    observed = keep_newest(sb.scorers.Observations(scores, epochs), slice(0, 1), 1)
    unknown, fell, rose = sb.experimental.Crossing(1 / 3).predict(observed, NEXT)[:3]
    assert fell < unknown < rose


def test_an_example_without_a_score_stays_unknown():
    observed = keep_newest(crowded()[0], slice(10, 20), 0)
    unknown = np.isnan(sb.experimental.Crossing(1 / 3).predict(observed, NEXT))
    assert unknown.nonzero()[0].tolist() == list(range(10, 20))


def shares_of_lower(scores):
    return [sum(other < score for other in scores) / len(scores) for score in scores]


@pytest.mark.parametrize(("learnable", "learns"), [(7, False), (8, True)])
def test_shares_of_lower_scores_are_told_where_fewer_than_eight_can_be_learned_from(
    learnable, learns
):
    scores, epochs = decaying(40)[0]
    order = np.argsort(-scores[0])  # of those learned from, some have crossed and some have not
    order = np.concatenate((order[::6], np.delete(order, np.s_[::6])))
    observed = sb.scorers.Observations(scores[:, order], epochs[:, order])
    observed = keep_newest(observed, slice(learnable, None), 2)
    told = sb.experimental.Crossing(1 / 2).predict(observed, NEXT).tolist()
    shares = np.float32(shares_of_lower(observed.scores[0].tolist())).tolist()
    assert (told != shares) == learns


@pytest.mark.parametrize(("rate", "scores"), [(1.0, None), (1 / 3, 2.0)])
def test_shares_of_lower_scores_are_told_where_all_or_none_cross(rate, scores):
    observed, _ = decaying(40)
    if scores is not None:  # equal ones, none of which exceeds another
        observed = observed._replace(scores=np.full_like(observed.scores, scores))
    told = sb.experimental.Crossing(rate).predict(observed, NEXT)
    assert told.tolist() == np.float32(shares_of_lower(observed.scores[0].tolist())).tolist()
