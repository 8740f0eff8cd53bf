"""What an early exit refuses, and what it says instead."""

from collections.abc import Callable
from typing import Any

import pytest
from fixture_doors import fresh_net
from fixture_early_exit import BATCHES, early, losses, start
from torch import nn
from unhooked import unhooked

import selective_backprop as sb


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: sb.scorers.Pipelined(inner, 4),
        lambda inner: sb.scorers.Pipelined(sb.scorers.LowPrecision(inner), 4),
        sb.scorers.Int8,
    ],
)
def test_scorers_that_bring_another_form_of_the_model_refuse_it(
    wrap: Callable[[sb.scorers.AbstractScorer], sb.scorers.AbstractScorer],
) -> None:
    expected = "another form of the model.*EarlyExit.*learns from the one in training"
    with pytest.raises(sb.ConfigurationError, match=expected):
        wrap(early())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"after": ""}, "after='':.*Forward"),
        ({"after": None}, "after=None:"),
        ({"make_head": nn.Linear(8, 3)}, "make_head=Linear:"),
        ({"check": 3}, "check=3"),
    ],
)
def test_what_cannot_work_is_refused_at_once(given: dict[str, Any], message: str) -> None:
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        early(**given)


@pytest.mark.parametrize(
    ("given", "context", "message"),
    [
        ({"after": "layer.1"}, {}, "after='layer.1'.*'layers.1'"),
        ({"make_head": lambda: 3}, {}, "make_head .*int"),
        ({}, {"losses": None}, "no loss"),
    ],
)
def test_what_does_not_fit_the_training_is_refused_when_it_starts(
    given: dict[str, Any], context: dict[str, Any], message: str
) -> None:
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        start(early(**given), fresh_net(), **context)


def test_without_a_model_there_is_nothing_to_exit_from() -> None:
    with pytest.raises(sb.ConfigurationError, match="no model"):
        early().start(sb.scorers.Context(6, 18, losses=losses))


def test_losses_from_elsewhere_than_the_models_outputs_are_refused() -> None:
    running = start(early(), fresh_net(), losses=lambda model, batch: batch[0].sum(1))
    with pytest.raises(sb.LossError, match="no gradient"):
        running.score(BATCHES[0], None)


def test_losses_that_ask_for_more_than_a_call_are_told_so() -> None:
    running = start(early(), fresh_net(), losses=lambda model, batch: model.layers(batch[0]))
    with pytest.raises(AttributeError, match=r"'layers'.*calling the model"):
        running.score(BATCHES[0], None)


def test_a_head_that_writes_to_its_input_is_refused() -> None:
    def writing() -> nn.Module:
        return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 3))

    running = start(early(make_head=writing), fresh_net())
    with pytest.raises(sb.ConfigurationError, match=r"input.*inplace"):
        running.score(BATCHES[0], None)
