"""The names of what `bench` compares, and what they stand for in each precision."""

import pytest
import torch
from selective_backprop.lab.bench.scorers import cheap_scorers, default_scorers, strategies

import selective_backprop as sb
from selective_backprop.lab.precision import Precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FP32, BF16 = Precision.FP32, Precision.BF16


def test_those_that_do_not_pay_must_be_asked_for():
    assert "half-resolution" not in cheap_scorers(8, CPU)
    assert {"compiled", "compiled-bf16"} <= cheap_scorers(32, CPU).keys()
    assert not any(name.startswith("compiled") for name in default_scorers(32, CPU, FP32))
    assert default_scorers(32, CUDA, FP32) == tuple(cheap_scorers(32, CUDA))


def test_what_gains_time_but_no_work_is_timed_on_a_gpu_alone():
    assert "pipelined" not in cheap_scorers(32, CPU)
    assert isinstance(cheap_scorers(32, CUDA)["pipelined"], sb.scorers.Pipelined)


def test_in_bf16_scorers_score_in_it_and_nothing_has_two_names():
    found = cheap_scorers(32, CUDA, BF16)
    assert found["forward"] == sb.scorers.Forward(autocast=torch.bfloat16)
    assert found["fp32"] == sb.scorers.Forward()
    assert found["synced"].scorer == found["pipelined"].scorer == found["forward"]
    assert not {"bf16", "compiled"} & found.keys()
    assert found["compiled-bf16"] == cheap_scorers(32, CUDA, FP32)["compiled-bf16"]
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
    found = strategies(1 / 3, precision, ("int8", "compiled-bf16", "pipelined"))
    assert set(found) - names == {
        "int8-sb",
        "int8-stale-sb",
        "compiled-bf16-sb",
        "compiled-bf16-stale-sb",
        "pipelined-sb",
    }
    known = cheap_scorers(32, CUDA, precision)
    assert found["selective-backprop"].scorer == known["forward"]
    for name in ("int8", "compiled-bf16", "pipelined"):
        assert found[f"{name}-sb"].scorer == known[name]
