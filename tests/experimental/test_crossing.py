"""A logistic regression tells which scores will be among the highest."""

import numpy as np
import pytest
import reference
import torch
from fixture_memory import NEXT, decaying, keep_newest

import selective_backprop as sb


def crowded():
    """Scores whose falls overtake one another, so that the last one alone misleads."""
    chance = np.random.default_rng(0)
    starts, slopes = chance.uniform(4, 5, 1000), chance.uniform(0, 1, 1000)
    epochs = np.repeat([[12], [9], [6]], 1000, axis=1)
    scores = starts - slopes * epochs / 6 + chance.normal(0, 0.02, (3, 1000))
    return sb.scorers.Observations(scores.astype(np.float32), epochs.astype(np.int32))


def test_a_part_of_the_examples_teaches_about_as_much():
    whole, some = (
        torch.from_numpy(sb.experimental.Crossing(1 / 4, points=points).predict(crowded(), NEXT))
        for points in (1000, 100)
    )
    agreement = sb.scorers.Agreement.between(some, whole, rate=1 / 4)
    assert 0.95 < agreement.overlap <= 1
    assert not torch.equal(some, whole)


@pytest.mark.parametrize("rate", [1 / 4, 1 / 2])
@pytest.mark.parametrize("same_epochs", [False, True])
@pytest.mark.parametrize("depth", [2, 3])
def test_probabilities_are_those_of_the_plain_twin(rate, same_epochs, depth):
    observed, _ = decaying(40, depth=depth, noise=0.5, same_epochs=same_epochs)
    wanted = reference.crossing_probabilities(observed.scores.T, observed.epochs.T, NEXT, rate)
    told = sb.experimental.Crossing(rate, depth=depth).predict(observed, NEXT)
    np.testing.assert_allclose(told, wanted, atol=2e-3)


def test_an_example_with_one_score_lies_between_those_that_fell_and_those_that_rose():
    scores, epochs = crowded()
    scores[:, :3] = scores[:, 500:501]  # three of the same history, of which one is forgotten
    scores[1, 1], scores[1, 2] = scores[1].max(), scores[1].min()
    observed = keep_newest(sb.scorers.Observations(scores, epochs), slice(0, 1), 1)
    unknown, fell, rose = sb.experimental.Crossing(1 / 3).predict(observed, NEXT)[:3]
    assert fell < unknown < rose


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
