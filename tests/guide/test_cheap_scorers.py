"""Cheap scorers are offered in the precision of training, as a user would write them."""

import pytest
import torch

import selective_backprop as sb
from selective_backprop.guide._scorers import cheap_scorers, exact_scorer

IMAGES = torch.zeros(2, 3, 16, 16)
FORWARD = sb.scorers.Forward()
BRAIN = sb.experimental.LowPrecision(FORWARD, torch.bfloat16, check=None)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
@pytest.mark.parametrize("device", [None, torch.device("cuda")])
def test_code_makes_a_scorer_of_the_same_kind(autocast, device):
    for found in cheap_scorers((IMAGES, torch.zeros(2)), device, autocast).values():
        made = eval(found.code, {"sb": sb, "torch": torch})
        assert type(made) is type(found.scorer)
        assert type(made.scorer) is type(found.scorer.scorer)


def test_those_that_may_pay_are_offered():
    assert list(cheap_scorers(IMAGES, torch.device("cuda"), None)) == [
        "int8",
        "bf16",
        "half-resolution",
    ]
    assert list(cheap_scorers(IMAGES, torch.device("cuda"), torch.bfloat16)) == [
        "int8",
        "half-resolution",
    ]
    assert list(cheap_scorers(torch.zeros(2, 3), None, None)) == ["int8"]


def test_losses_are_computed_as_training_computes_them():
    assert exact_scorer(None) == FORWARD
    assert exact_scorer(torch.bfloat16) == BRAIN
    assert cheap_scorers(IMAGES, None, torch.bfloat16)["half-resolution"].scorer.scorer == BRAIN
