"""Predictors: an average of the last scores, and a Gaussian process that tells where they go."""

import math
import sys

import numpy as np
import pytest
import torch
from fixture_memory import NEXT, decaying, keep_newest
from hypothesis import given
from hypothesis import strategies as st
from reference import weighted_average

import selective_backprop as sb

SCORES = st.floats(-100, 100, width=32)


@given(
    st.lists(st.lists(SCORES, max_size=4), min_size=1, max_size=6), st.sampled_from([0.0, 0.3, 0.9])
)
def test_newer_scores_weigh_more_and_only_what_is_known_counts(columns, decay):
    ledger = sb.scorers.Ledger(len(columns), depth=4)
    for example, column in enumerate(columns):
        for epoch, score in enumerate(reversed(column)):
            ledger.scored.file(torch.tensor([example]), torch.tensor([score]), epoch)
    found = sb.scorers.Average(decay, depth=4).predict(ledger.scored.observe(), epoch=9)
    assert found.dtype == np.float32
    for column, prediction in zip(columns, found.tolist(), strict=True):
        if column:
            expected = weighted_average(column, decay)
            assert prediction == pytest.approx(expected, rel=1e-5, abs=1e-4)
        else:
            assert math.isnan(prediction)


def error(predicted, truth):
    return np.abs(predicted - truth).mean()


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("same_epochs", [False, True])
def test_falling_scores_are_told_better_than_by_the_last_or_its_usual_fall(noise, same_epochs):
    observed, truth = decaying(noise=noise, same_epochs=same_epochs)
    told = error(sb.scorers.GaussianProcess().predict(observed, NEXT), truth)
    last = observed.scores[0]
    assert told < 0.5 * error(last, truth)
    # the best of all falls that are the same for every example; nobody knows it beforehand
    usual = min(error(last * fall, truth) for fall in np.linspace(0.2, 1.0, 81))
    assert told < 0.8 * usual


def test_the_epochs_between_are_made_use_of():
    observed, truth = decaying()
    soon, later = (sb.scorers.GaussianProcess().predict(observed, NEXT + more) for more in (0, 1))
    assert later.mean() < soon.mean()
    blind = sb.scorers.Observations(observed.scores, decaying(same_epochs=True)[0].epochs)
    without = sb.scorers.GaussianProcess().predict(blind, NEXT)
    with_them = sb.scorers.GaussianProcess().predict(observed, NEXT)
    assert error(with_them, truth) < 0.1 * error(without, truth)


def test_examples_that_were_not_learned_from_are_told_as_well():
    observed, truth = decaying(5000, same_epochs=True)  # in more than one piece
    predicted = sb.scorers.GaussianProcess(points=64).predict(observed, NEXT)
    learned = np.argsort(observed.scores[1])[:: 5000 // 64]
    others = np.setdiff1d(np.arange(5000), learned)
    last = observed.scores[0]
    for piece in np.array_split(others, 5):
        assert error(predicted[piece], truth[piece]) < 0.1 * error(last[piece], truth[piece])
    assert (predicted < last).all()


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_unit_of_the_scores_does_not_matter(factor):
    observed, _ = decaying(100)
    scaled = sb.scorers.Observations(observed.scores * np.float32(factor), observed.epochs)
    predicted, same = (
        sb.scorers.GaussianProcess().predict(seen, NEXT) for seen in (observed, scaled)
    )
    np.testing.assert_allclose(same, predicted * factor, rtol=1e-3)


def test_an_example_with_too_few_scores_is_told_its_last_one():
    observed, _ = decaying()
    observed = keep_newest(keep_newest(observed, slice(0, 40), 1), slice(40, 50), 0)
    observed = keep_newest(observed, slice(50, 60), 2)
    predicted = sb.scorers.GaussianProcess().predict(observed, NEXT)
    assert predicted[:40].tolist() == observed.scores[0, :40].tolist()
    assert np.isnan(predicted[40:50]).all()
    assert (predicted[50:] != observed.scores[0, 50:]).all()


@pytest.mark.parametrize(("learnable", "learns"), [(7, False), (8, True)])
def test_all_are_told_their_last_score_where_fewer_than_eight_can_be_learned_from(
    learnable, learns
):
    observed = keep_newest(decaying()[0], slice(learnable, None), 2)
    predicted = sb.scorers.GaussianProcess().predict(observed, NEXT)
    assert (predicted.tolist() != observed.scores[0].tolist()) == learns


@pytest.mark.parametrize("score", [0.0, 2.5, -1.0])
def test_scores_that_never_move_stay_without_a_warning(score):
    _, epochs = decaying(50, same_epochs=True)[0]
    still = sb.scorers.Observations(np.full((3, 50), score, np.float32), epochs)
    predicted = sb.scorers.GaussianProcess().predict(still, NEXT)
    np.testing.assert_allclose(predicted, score, atol=1e-6)


@pytest.mark.parametrize("predictor", [sb.scorers.GaussianProcess, sb.experimental.Crossing])
def test_a_missing_scikit_learn_is_told_when_the_predictor_is_made(predictor, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    wanted = rf"{predictor.__name__}\(\) .*pip install 'selective-backprop\[predict\]'"
    with pytest.raises(sb.ConfigurationError, match=wanted):
        predictor()
