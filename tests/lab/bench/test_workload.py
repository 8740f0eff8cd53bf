"""What is measured on: a model, the scorers it can be timed with, and enough images."""

from dataclasses import replace

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab.bench.workload import (
    all_scorers,
    bench_recipe,
    made_up,
    make_workload,
)
from selective_backprop_lab.recipe import Precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SMALL = replace(bench_recipe("1x8x8/3"), model="tiny_cnn", batch_size=8)


@pytest.mark.parametrize(
    ("recipe", "rate", "window", "examples"),
    [
        (SMALL, 1 / 3, 24, 96),  # four windows of the shape that was named
        (replace(bench_recipe("digits"), model="tiny_cnn"), 1 / 2, 128, 512),
        (replace(bench_recipe("digits"), model="linear"), 1 / 20, 1280, 1280),  # all there is
    ],
)
def test_an_epoch_has_four_windows_or_as_many_as_the_data_fills(recipe, rate, window, examples):
    workload = make_workload(recipe, rate=rate, device=CPU)
    assert (workload.window, workload.examples) == (window, examples)
    assert len(workload.data.train_labels) == examples
    assert workload.at_once == workload.batch_size == recipe.batch_size


def test_data_that_does_not_fill_a_window_is_refused():
    recipe = replace(bench_recipe("digits"), batch_size=1000)
    with pytest.raises(sb.ConfigurationError, match=r"3,000 .* 1,437 .*--batch-size .*--rate"):
        make_workload(recipe, rate=1 / 3, device=CPU)


def test_what_gains_time_but_no_work_is_timed_on_a_gpu_alone():
    assert "pipelined" not in all_scorers(CPU, Precision.FP32)
    assert "pipelined" in all_scorers(CUDA, Precision.FP32)


@pytest.mark.parametrize(
    ("precision", "other"), [(Precision.FP32, "bf16"), (Precision.BF16, "fp32")]
)
def test_scorers_score_as_training_computes_but_the_one_named_by_the_other_precision(
    precision, other
):
    scorers = all_scorers(CPU, precision)
    assert list(scorers) == ["forward", other]
    assert [scored_in for _, scored_in in scorers.values()] == [precision, other]


def test_images_that_are_made_up_are_the_same_every_time_and_of_every_class():
    one, other = made_up("3x9x9/4", 20), made_up("3x9x9/4", 20)
    assert torch.equal(one.train_inputs, other.train_inputs)
    assert one.train_labels.unique().tolist() == [0, 1, 2, 3]
    assert made_up("3x9x9", 20).classes == 10


@pytest.mark.parametrize("shape", ["3x8x9", "0x8x8", "3x8x8/0"])
def test_shapes_that_no_net_takes_are_refused(shape):
    with pytest.raises(sb.ConfigurationError, match="square images"):
        made_up(shape, 4)
