"""What cannot work is refused before training starts, with what to write instead."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fixture_keras import QUIET, digits, keras, make_loader, make_model
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.integrations.keras import SelectiveFit

pytestmark = QUIET

SB = sb.selective_backprop(rate=1 / 2)


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


class OwnLoss(keras.Sequential):
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs)


def net(kind=keras.Sequential, *, loss="sparse_categorical_crossentropy", **compiled):
    model = kind([keras.layers.Input((64,)), keras.layers.Dense(10, activation="softmax")])
    model.compile("sgd", loss=loss, **compiled)
    return model


def two_outputs():
    inputs = keras.Input((64,))
    outputs = [keras.layers.Dense(10, activation="softmax")(inputs) for _ in range(2)]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", loss=["sparse_categorical_crossentropy"] * 2)
    return model


def stateful():
    layers = [keras.layers.Input((64, 1), batch_size=8), keras.layers.GRU(2, stateful=True)]
    model = keras.Sequential([*layers, keras.layers.Dense(10, activation="softmax")])
    model.compile("sgd", loss="sparse_categorical_crossentropy")
    return model


def stateful_inside():
    model = keras.Sequential([keras.layers.Input((64, 1), batch_size=8), stateful()])
    model.compile("sgd", loss="sparse_categorical_crossentropy")
    return model


def mean_with_weights():
    reduction = "mean_with_sample_weight"
    return net(loss=keras.losses.SparseCategoricalCrossentropy(reduction=reduction))


@pytest.mark.parametrize(
    ("model", "strategy", "message"),
    [
        (lambda: keras.Sequential([keras.layers.Dense(1)]), SB, r"call model\.compile"),
        (lambda: net(loss=None), SB, "loss=None.*no single loss"),
        (two_outputs, SB, "no single loss.*losses=callable"),
        (lambda: net(OwnStep), SB, "train_step .*losses=callable"),
        (lambda: net(OwnLoss), SB, "compute_loss .*losses=callable"),
        (lambda: net(loss="crossentropy"), SB, "full name"),
        (stateful_inside, SB, "stateful=False"),
        (stateful, SB, "stateful=False"),
        (mean_with_weights, sb.easy_skip(), "'sum_over_batch_size'"),
        (lambda: net(OwnStep), sb.easy_skip(), "OwnStep.train_step .*weighted losses"),
        (lambda: net(jit_compile=True), sb.recorded_sb(rate=1 / 2), "jit_compile=False"),
        (lambda: net(loss=lambda t, p: (t - p[:, 0]).mean()), SB, "per example"),
        (lambda: net(loss="huber"), sb.auto(), "huber is no cross-entropy.*recorded_sb"),
        (
            lambda: net(loss=keras.losses.MeanSquaredError()),
            sb.kakurenbo(),
            "MeanSquaredError is no cross-entropy.*recorded_sb",
        ),
    ],
)
def test_a_model_that_cannot_be_selected_for(model, strategy, message):
    with pytest.raises(sb.SelectiveBackpropError, match=message):
        SelectiveFit(model(), strategy).fit(*digits(), epochs=8, verbose=0)


def opposite(targets, outputs):
    return -keras.ops.take_along_axis(outputs, targets[:, None].long(), 1)[:, 0]


def squared(targets, outputs):
    return (targets - outputs[:, 0]) ** 2


@pytest.mark.parametrize("strategy", [sb.auto(), sb.kakurenbo()], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("loss", "scale", "message"),
    [
        (squared, np.float32(1), "targets from 0 to .* no probabilities.*recorded_sb"),
        (squared, np.float32(1 / 9), "losses as low as .*recorded_sb"),
        (opposite, 1, "losses as low as -0.*recorded_sb"),
    ],
    ids=["numbers", "shares", "a probability"],
)
def test_a_loss_of_ones_own_that_is_no_cross_entropy(loss, scale, message, strategy):
    images, classes = digits()
    model = net(loss=loss)
    before = [np.array(each) for each in model.get_weights()]
    with pytest.raises(sb.LossError, match=message):
        SelectiveFit(model, strategy).fit(images, classes * scale, epochs=8, verbose=0)
    assert all(map(np.array_equal, before, model.get_weights()))


@pytest.mark.parametrize(
    "scorer",
    [
        sb.experimental.Pipelined(sb.scorers.Forward(), every=2),
        sb.scorers.Stale(sb.scorers.Forward(training=True), epochs=2),
    ],
    ids=["copies the model", "scores in training mode"],
)
def test_a_scorer_that_would_move_what_keras_keeps_in_its_own_variables(scorer):
    with pytest.raises(sb.ConfigurationError, match=r"variables.*Forward\(\)"):
        SelectiveFit(net(), sb.selective_backprop(rate=1 / 2, scorer=scorer))


def test_a_model_of_torch():
    with pytest.raises(sb.ConfigurationError, match=r"keras\.Model.*got Linear"):
        SelectiveFit(torch.nn.Linear(1, 1), SB)


def test_recorded_losses_of_losses_that_were_given():
    trainer = SelectiveFit(net(), sb.recorded_sb(rate=1 / 2), losses=lambda model, batch: None)
    with pytest.raises(sb.ConfigurationError, match="losses= and jit_compile"):
        trainer.fit(*digits(), epochs=2, verbose=0)


class PyDataset(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return digits(8)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (PyDataset, "PyDataset.*iterable_data_set"),
        (lambda: (batch for batch in [digits(8)]), "generator.*iterable_data_set"),
        (
            lambda: sb.SelectiveLoader(make_loader(*digits()), None, None, sb.traditional()),
            "SelectiveLoader.*torch DataLoader",
        ),
    ],
)
def test_data_that_cannot_be_chosen_from(x, message):
    with pytest.raises(sb.ConfigurationError, match=message):
        SelectiveFit(net(), SB).fit(x(), verbose=0)


@pytest.mark.parametrize(
    "given", [{"y": digits()[1]}, {"batch_size": 8}, {"sample_weight": np.ones(160)}]
)
def test_arguments_that_a_loader_has_its_say_on(given):
    with pytest.raises(sb.ConfigurationError, match=r"for arrays.*\(x, y, sample_weight\)"):
        SelectiveFit(net(), SB).fit(make_loader(*digits()), verbose=0, **given)


@pytest.mark.parametrize(
    ("arrays", "given", "message"),
    [
        ((np.zeros((5, 64)), np.zeros(4)), {}, "same length.*4, 5.* rows"),
        (digits(), {"class_weight": {0: 1.0}}, "give sample_weight="),
        (digits(), {"validation_split": 0.2}, "give .*validation_data="),
        (digits(), {"batch_size": "16"}, "batch_size='16'.*write batch_size=16"),
        (digits(), {"shuffle": "batch"}, "True or False"),
    ],
)
def test_arrays_and_arguments_that_do_not_go_together(arrays, given, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        SelectiveFit(net(), SB).fit(*arrays, verbose=0, **given)


def test_several_steps_in_one_execution():
    trainer = SelectiveFit(net(steps_per_execution=2), SB)
    with pytest.raises(ValueError, match=r"`steps_per_execution` .*1"):  # Keras's own
        trainer.fit(*digits(), epochs=2, verbose=0)
    assert trainer.stats.batches == 0


def test_asking_before_the_first_fit():
    trainer = SelectiveFit(make_model(), SB)
    for ask in (lambda: trainer.stats, lambda: trainer.loader, trainer.state_dict):
        with pytest.raises(sb.ConfigurationError, match=r"call fit\(\.\.\.\) first"):
            ask()


JAX = """
import sys, types
sys.modules["keras"] = types.SimpleNamespace(backend=types.SimpleNamespace(backend=lambda: "jax"))
"""


@pytest.mark.parametrize(
    ("before", "backend"), [("", "tensorflow"), (JAX, "jax")], ids=["one not there", "another"]
)
def test_another_backend_is_named_with_what_to_do_when_the_adapter_is_imported(before, backend):
    code = before + "import selective_backprop.integrations.keras"
    source = str(Path(sb.__file__).parents[1])
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert "ConfigurationError: Keras's backend is" in last
    assert backend in last
    assert "KERAS_BACKEND=torch" in last
