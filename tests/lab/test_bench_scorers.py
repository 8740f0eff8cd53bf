"""The names of what `bench` compares, and what they stand for in each precision."""

import pytest
import torch

import selective_backprop as sb
from selective_backprop.lab.bench_scorers import cheap_scorers, strategies
from selective_backprop.lab.precision import Precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BF16 = Precision.BF16


def test_small_images_are_not_made_smaller():
    assert "half-resolution" not in cheap_scorers(8, CPU)
    assert "half-resolution" in cheap_scorers(16, CPU)


def test_what_gains_time_but_no_work_is_timed_on_a_gpu_alone():
    assert "pipelined" not in cheap_scorers(32, CPU)
    assert isinstance(cheap_scorers(32, CUDA)["pipelined"], sb.scorers.Pipelined)


def test_in_bf16_scorers_score_in_it_and_nothing_has_two_names():
    found = cheap_scorers(32, CUDA, BF16)
    assert found["forward"] == cheap_scorers(32, CUDA)["bf16"]
    assert found["fp32"] == sb.scorers.Forward()
    assert found["half-resolution"].scorer == found["pipelined"].scorer == found["forward"]
    assert "bf16" not in found
    for precision in Precision:
        kinds = list(map(repr, cheap_scorers(32, CUDA, precision).values()))
        assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("precision", Precision)
def test_strategies_score_with_the_cheapest_scorers_that_can_be_timed(precision):
    names = set(strategies(1 / 3, precision, ()))
    assert names == {
        "traditional",
        "random-backprop",
        "selective-backprop",
        "stale-sb",
        "recorded-sb",
    }
    found = strategies(1 / 3, precision, ("int8", "pipelined"))
    assert set(found) - names == {"int8-sb", "int8-stale-sb", "pipelined-sb"}
    known = cheap_scorers(32, CUDA, precision)
    assert found["selective-backprop"].scorer == known["forward"]
    for name in ("int8", "pipelined"):
        assert found[f"{name}-sb"].scorer == known[name]
