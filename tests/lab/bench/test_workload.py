"""What is measured on: a model that learned for a moment, and as many images as an epoch needs."""

from dataclasses import replace

import pytest
import torch

import selective_backprop as sb
from selective_backprop.lab.bench.workload import (
    TimedModel,
    bench_recipe,
    made_up,
    make_workload,
    window_of,
)
from selective_backprop.lab.recipe import Precision

CPU = torch.device("cpu")
SMALL = replace(bench_recipe("1x8x8/3"), model="tiny_cnn", batch_size=8)


def losses(model, batches):
    with torch.no_grad():
        return torch.cat(
            [
                torch.nn.functional.cross_entropy(model.eval()(images), labels, reduction="none")
                for images, labels in batches
            ]
        )


def test_an_epoch_has_two_windows_of_the_shape_that_was_named():
    workload = make_workload(SMALL, rate=1 / 3, device=CPU)
    assert (workload.window, workload.examples) == (24, 48)
    assert [tuple(images.shape) for images, _ in workload.batches()] == [(8, 1, 8, 8)] * 6
    assert workload.data.classes == 3


def test_named_data_is_as_large_as_two_windows():
    recipe = replace(bench_recipe("digits"), model="tiny_cnn")
    workload = make_workload(recipe, rate=1 / 2, device=CPU)
    assert (workload.data.name, workload.examples) == ("digits", 256)


def test_where_data_is_short_its_whole_windows_are_taken():
    recipe = replace(bench_recipe("digits"), model="linear")
    workload = make_workload(recipe, rate=1 / 20, device=CPU)
    assert (workload.window, workload.examples) == (1280, 1280)


def test_data_that_does_not_fill_a_window_is_refused():
    recipe = replace(bench_recipe("digits"), batch_size=1000)
    with pytest.raises(sb.ConfigurationError, match=r"3,000 .* 1,437 .*--batch-size or a .*--rate"):
        make_workload(recipe, rate=1 / 3, device=CPU)


def test_the_model_learned_something_and_does_not_lose_sight_of_all():
    workload = make_workload(SMALL, rate=1 / 3, device=CPU)
    found = losses(workload.model, workload.batches())
    assert found.mean() < 1.0986  # of one of three classes at random
    assert found.std() > 0.01


def test_a_timed_model_leaves_the_workload_alone_and_charges_its_steps():
    workload = make_workload(SMALL, rate=1 / 3, device=CPU)
    before = [value.clone() for value in workload.model.state_dict().values()]
    ticks = iter(range(1000))
    stopwatch = sb.Stopwatch(clock=lambda: float(next(ticks)))
    timed, told = TimedModel(workload, stopwatch), []
    stopwatch.start()
    timed.step(*workload.batches()[0], torch.zeros(8), told.append)
    stopwatch.stop()
    assert stopwatch.seconds.keys() == {"other", "forward", "select", "backward", "step"}
    assert told[0].shape == (8,)
    assert not told[0].requires_grad
    after = list(workload.model.state_dict().values())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("precision", "dtype"), [(Precision.FP32, torch.float32), (Precision.BF16, torch.bfloat16)]
)
def test_steps_compute_in_the_precision_that_is_asked_for(precision, dtype):
    workload = make_workload(replace(SMALL, precision=precision), rate=1 / 3, device=CPU)
    timed, seen = TimedModel(workload, sb.Stopwatch()), []
    timed.model.register_forward_hook(lambda model, inputs, logits: seen.append(logits.dtype))
    told = []
    timed.step(*workload.batches()[0], None, told.append)
    assert seen == [dtype]
    assert told[0].dtype == torch.float32
    assert all(weights.dtype == torch.float32 for weights in timed.model.parameters())


def test_batches_can_be_as_large_as_a_window():
    workload = make_workload(SMALL, rate=1 / 3, device=CPU)
    assert [len(labels) for _, labels in workload.batches(24)] == [24, 24]
    assert (workload.at_once, replace(workload, device=torch.device("cuda")).at_once) == (8, 24)


def test_images_that_are_made_up_are_the_same_every_time_and_of_every_class():
    one, other = made_up("3x9x9/4", 20), made_up("3x9x9/4", 20)
    assert torch.equal(one.train_images, other.train_images)
    assert one.train_labels.unique().tolist() == [0, 1, 2, 3]
    assert made_up("3x9x9", 20).classes == 10


@pytest.mark.parametrize("shape", ["3x8x9", "0x8x8", "3x8x8/0"])
def test_shapes_that_no_net_takes_are_refused(shape):
    with pytest.raises(sb.ConfigurationError, match="square images"):
        made_up(shape, 4)


@pytest.mark.parametrize("rate", [0.0, 1.5])
def test_rates_out_of_range_are_refused(rate):
    with pytest.raises(sb.ConfigurationError, match="a share in"):
        window_of(8, rate)
    assert window_of(8, 1.0) == 8
