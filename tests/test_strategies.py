"""The famous methods are the combinations that they are said to be."""

import dataclasses

import pytest
from unhooked import unhooked

import selective_backprop as sb


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (sb.traditional(), sb.Strategy("traditional", None, sb.Everything())),
        (
            sb.random_backprop(1 / 3),
            sb.Strategy("random-backprop", None, sb.Uniform(1 / 3), sb.Schedule()),
        ),
        (
            sb.random_scored(0.5, draw="bernoulli", schedule=sb.Schedule(1)),
            sb.Strategy(
                "random-scored", sb.Forward(), sb.Uniform(0.5, "bernoulli"), sb.Schedule(1)
            ),
        ),
        (
            sb.selective_backprop(beta=2),
            sb.Strategy(
                "selective-backprop",
                sb.Forward(),
                sb.Percentile(2, "exact", 1024),
                sb.Schedule(warmup_epochs=1),
            ),
        ),
        (
            sb.selective_backprop(
                beta=3,
                draw="bernoulli",
                history=7,
                warmup_epochs=2,
                start=0.1,
                end=0.9,
                plain_every=5,
                scorer=sb.Forward(training=True),
            ),
            sb.Strategy(
                "selective-backprop",
                sb.Forward(training=True),
                sb.Percentile(3, sb.Draw.BERNOULLI, 7),
                sb.Schedule(2, 0.1, 0.9, 5),
            ),
        ),
    ],
)
def test_a_named_method_is_its_combination(strategy, expected):
    assert strategy == expected


@pytest.mark.parametrize(("rate", "beta"), [(1.0, 0), (1 / 2, 1), (1 / 3, 2), (1 / 4, 3), (0.1, 9)])
def test_rate_and_beta_are_one_knob(rate, beta):
    by_rate = sb.selective_backprop(rate=rate)
    by_beta = sb.selective_backprop(beta=beta)
    assert by_rate.selector.beta == pytest.approx(beta)
    assert by_beta.selector.terms.rate == pytest.approx(rate)


def test_rate_may_be_given_by_position():
    assert sb.selective_backprop(0.5) == sb.selective_backprop(rate=0.5)


@pytest.mark.parametrize(
    ("options", "found"), [({}, "neither"), ({"rate": 0.5, "beta": 1.0}, "both")]
)
def test_both_or_neither_of_rate_and_beta_are_refused(options, found):
    with pytest.raises(sb.ConfigurationError, match=f"{found} of rate and beta given"):
        sb.selective_backprop(**options)


@pytest.mark.parametrize("rate", [0.0, -0.5, 1.5, float("nan"), float("inf")])
@pytest.mark.parametrize(
    "method", [sb.random_backprop, sb.random_scored, sb.selective_backprop, sb.Top, sb.Bottom]
)
def test_a_rate_that_keeps_nothing_or_more_than_all_is_refused(method, rate):
    with pytest.raises(sb.ConfigurationError, match=f"rate={rate}.*in \\(0, 1\\]"):
        method(rate)


@pytest.mark.parametrize("beta", [-0.1, float("nan"), float("inf")])
def test_a_selectivity_that_means_nothing_is_refused(beta):
    with pytest.raises(sb.ConfigurationError, match=f"beta={beta}"):
        sb.selective_backprop(beta=beta)


@pytest.mark.parametrize("history", [0, -1, 1.5, float("nan"), float("inf")])
def test_a_history_of_no_whole_number_of_losses_is_refused(history):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"history={history}"):
        sb.selective_backprop(beta=1, history=history)


@pytest.mark.parametrize(
    "method",
    [
        lambda draw: sb.selective_backprop(beta=1, draw=draw),
        lambda draw: sb.random_backprop(0.5, draw=draw),
        lambda draw: sb.random_scored(0.5, draw=draw),
    ],
)
def test_an_unknown_draw_is_refused_with_the_known_ones(method):
    with (
        unhooked(),
        pytest.raises(
            sb.ConfigurationError, match="draw='dice': there are 'exact' and 'bernoulli'"
        ),
    ):
        method("dice")


def test_a_bad_schedule_is_refused_by_the_method():
    with pytest.raises(sb.ConfigurationError, match="plain_every=1"):
        sb.selective_backprop(beta=1, plain_every=1)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("x", sb.Forward, sb.Top(0.5)), "is no scorer, such as Forward\\(\\)"),
        (("x", sb.Forward(), sb.Top), "is no selector, such as Percentile"),
        (("x", sb.Forward(), None), "selector=None is no selector"),
        (("x", sb.Top(0.5), sb.Forward()), "is no scorer"),
        (("x", sb.Forward(), sb.Top(0.5), None), "schedule=None is no schedule"),
        (("x", sb.Forward(), sb.Top(0.5), sb.Schedule), "is no schedule"),
    ],
)
def test_parts_that_are_something_else_are_refused(parts, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.Strategy(*parts)


@pytest.mark.parametrize("selector", [sb.Percentile(1), sb.Top(0.5), sb.Bottom(0.5)])
def test_a_choice_by_score_without_a_scorer_is_refused(selector):
    with pytest.raises(sb.ConfigurationError, match="chooses by score and needs a scorer"):
        sb.Strategy("x", None, selector)


def test_a_strategy_does_not_change_and_compares_by_value():
    strategy = sb.selective_backprop(beta=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        strategy.name = "other"
    assert strategy == sb.selective_backprop(rate=0.5)
    assert hash(strategy) == hash(sb.selective_backprop(rate=0.5))
