"""What cannot work is refused before training starts, with what to write instead."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fixture_keras import QUIET, digits, keras, make_loader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.integrations.keras import SelectiveFit

pytestmark = QUIET

SB = sb.selective_backprop(rate=1 / 2)
MEAN_SQUARED = keras.losses.MeanSquaredError()
AVERAGING = keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")


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


def stateful(*, inside=False):
    layers = [keras.layers.Input((64, 1), batch_size=8), keras.layers.GRU(2, stateful=True)]
    model = keras.Sequential([*layers, keras.layers.Dense(10, activation="softmax")])
    model = keras.Sequential([layers[0], model]) if inside else model
    model.compile("sgd", loss="sparse_categorical_crossentropy")
    return model


@pytest.mark.parametrize(
    ("model", "strategy", "message"),
    [
        (lambda: keras.Sequential([keras.layers.Dense(1)]), SB, r"call model\.compile"),
        (lambda: net(loss=None), SB, "loss=None.*no single loss"),
        (two_outputs, SB, "no single loss.*losses=callable"),
        (lambda: net(OwnStep), SB, "train_step .*losses=callable"),
        (lambda: net(OwnLoss), SB, "compute_loss .*losses=callable"),
        (lambda: net(loss="crossentropy"), SB, "full name"),
        (lambda: stateful(inside=True), SB, "stateful=False"),
        (stateful, SB, "stateful=False"),
        (lambda: net(loss=AVERAGING), sb.easy_skip(), "'sum_over_batch_size'"),
        (lambda: net(OwnStep), sb.easy_skip(), "OwnStep.train_step .*weighted losses"),
        (lambda: net(jit_compile=True), sb.recorded_sb(1 / 2), "jit_compile=False"),
        (lambda: net(loss=lambda t, p: (t - p[:, 0]).mean()), SB, "per example"),
        (lambda: net(loss="huber"), sb.auto(), "huber is no cross-entropy.*recorded_sb"),
        (lambda: net(loss=MEAN_SQUARED), sb.kakurenbo(), "MeanSquaredError is no.*recorded_sb"),
    ],
)
def test_a_model_that_cannot_be_selected_for(model, strategy, message):
    with pytest.raises(sb.SelectiveBackpropError, match=message):
        SelectiveFit(model(), strategy).fit(*digits(), epochs=8, verbose=0)


def opposite(targets, outputs):
    return -keras.ops.take_along_axis(outputs, targets[:, None].long(), 1)[:, 0]


def squared(targets, outputs):
    return (targets - outputs[:, 0]) ** 2


@pytest.mark.parametrize(
    ("loss", "scale", "message"),
    [
        (squared, np.float32(1), "targets from 0 to .* no probabilities.*recorded_sb"),
        (squared, np.float32(1 / 9), "losses as low as .*recorded_sb"),
        (opposite, 1, "losses as low as -0.*recorded_sb"),
    ],
)
def test_a_loss_of_ones_own_that_is_no_cross_entropy(loss, scale, message):
    images, classes = digits()
    model = net(loss=loss)
    before = [np.array(each) for each in model.get_weights()]
    with pytest.raises(sb.LossError, match=message):
        SelectiveFit(model, sb.auto()).fit(images, classes * scale, epochs=8, verbose=0)
    assert all(map(np.array_equal, before, model.get_weights()))


class PyDataset(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return digits(8)


def fit(*data, strategy=SB, losses=None, **given):
    SelectiveFit(net(), strategy, losses=losses).fit(*data, epochs=2, verbose=0, **given)


def loader():
    return make_loader(*digits())


def selecting():
    return sb.SelectiveLoader(loader(), None, None, sb.traditional())


def by(scorer):
    return sb.selective_backprop(rate=1 / 2, scorer=scorer)


FORWARD, RECORDED = sb.scorers.Forward(), sb.recorded_sb(1 / 2)
VARIABLES = r"variables.*Forward\(\)"
BESIDE_A_LOADER = r"for arrays.*\(x, y, sample_weight\)"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: fit(strategy=by(sb.experimental.Pipelined(FORWARD, 2))), VARIABLES),
        (lambda: fit(strategy=by(sb.scorers.Forward(training=True))), VARIABLES),
        (lambda: SelectiveFit(torch.nn.Linear(1, 1), SB), r"keras\.Model.*got Linear"),
        (lambda: fit(*digits(), strategy=RECORDED, losses=print), "losses= and jit_compile"),
        (lambda: fit(PyDataset()), "PyDataset.*iterable_data_set"),
        (lambda: fit(selecting()), "SelectiveLoader.*torch DataLoader"),
        (lambda: fit(loader(), digits()[1]), BESIDE_A_LOADER),
        (lambda: fit(loader(), batch_size=8), BESIDE_A_LOADER),
        (lambda: fit(np.zeros((5, 64)), np.zeros(4)), "same length.*4, 5.* rows"),
        (lambda: fit(*digits(), class_weight={0: 1.0}), "give sample_weight="),
        (lambda: fit(*digits(), validation_split=0.2), "give .*validation_data="),
        (lambda: fit(*digits(), batch_size="16"), "batch_size='16' of type str"),
        (lambda: fit(*digits(), shuffle="batch"), "True or False"),
        (lambda: SelectiveFit(net(), SB).stats, r"call fit\(\.\.\.\) first"),
    ],
)
def test_what_cannot_be_scored_chosen_from_or_asked_for(ask, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        ask()


JAX = """
import sys, types
sys.modules["keras"] = types.SimpleNamespace(backend=types.SimpleNamespace(backend=lambda: "jax"))
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])  # one is not there
def test_another_backend_is_named_with_what_to_do_when_the_adapter_is_imported(backend):
    code = JAX * (backend == "jax") + "import selective_backprop.integrations.keras"
    source = str(Path(sb.__file__).parents[1])
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "PYTHONPATH": source}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    for part in ("ConfigurationError: Keras's backend is", backend, "KERAS_BACKEND=torch"):
        assert part in last
