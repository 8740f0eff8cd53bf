"""A Keras model trains by its own `fit`, callbacks and all, on what a strategy selects."""

import csv
import math

import numpy as np
import pytest
import torch
from fixture_adapters import Stream
from fixture_keras import QUIET, digits, keras, make_model, same, values

import selective_backprop as sb
from selective_backprop.integrations.keras import SelectiveFit
from selective_backprop.strategies._auto.wrong_labels import LabelNoise

pytestmark = QUIET

SB = sb.selective_backprop(rate=1 / 3)


class Steps(keras.callbacks.Callback):
    """Counts the steps of each epoch."""

    def __init__(self):
        super().__init__()
        self.counts = []

    def on_epoch_begin(self, epoch, logs=None):
        self.counts.append(0)

    def on_train_batch_end(self, batch, logs=None):
        self.counts[-1] += 1


def train(strategy, *args, model=None, options=None, **fit):
    """Trains, and returns what trained, the history and the steps of each epoch."""
    steps = Steps()
    trainer = SelectiveFit(make_model() if model is None else model, strategy, **(options or {}))
    callbacks = [steps, *fit.pop("callbacks", ())]
    history = trainer.fit(*args, callbacks=callbacks, **{"verbose": 0, "epochs": 3} | fit)
    return trainer, history.history, steps.counts


WEIGHTS = {"sample_weight": np.linspace(0, 2, 160, dtype="float32")}


@pytest.mark.parametrize(
    ("strategy", "given"),
    [
        (sb.traditional(), {"epochs": 2, **WEIGHTS}),
        (sb.infobatch(), {"epochs": 1, **WEIGHTS}),  # whose own weights are 1 in the first epoch
        (sb.traditional(), {"epochs": 2, "batch_size": 20, "validation_data": digits(40)}),
    ],
    ids=["sample_weight", "and weights of the strategy", "validation_data"],
)
def test_arrays_and_weights_are_taken_as_keras_takes_them(strategy, given):
    plain = make_model()
    expected = plain.fit(*digits(), verbose=0, shuffle=False, **given).history
    trainer, history, _ = train(strategy, *digits(), shuffle=False, **given)
    assert same(values(plain), values(trainer._model))
    assert {name: history[name] for name in expected} == expected


def test_a_stream_of_whole_batches_is_selected_from_in_batches_as_large_as_the_first():
    images, classes = map(torch.as_tensor, digits())
    batches = Stream([(images[at : at + 8], classes[at : at + 8]) for at in range(0, 160, 8)])
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    trainer, _, steps = train(SB, loader, epochs=2)
    assert trainer.loader.batch_size == 8
    assert steps == [20, 6]
    trainer, _, steps = train(sb.traditional(), loader, epochs=2)
    assert trainer.loader.batch_size is None  # batches are passed on unchanged
    assert steps == [20, 20]


def test_an_epoch_has_as_many_steps_as_it_yields_whatever_the_first_one_had(capsys):
    trainer, history, steps = train(
        sb.selective_backprop(rate=1 / 3, draw="bernoulli"), *digits(), batch_size=8, epochs=5
    )
    assert steps[0] == 20
    assert sum(steps) == trainer.stats.batches
    assert all(3 <= count <= 11 for count in steps[1:])
    assert len(history["loss"]) == 5
    strategy = sb.Strategy("late", None, sb.selectors.Uniform(0.25), sb.Schedule(end=0.5))
    _, _, steps = train(strategy, *digits(), batch_size=8, epochs=4, verbose=2)
    assert steps == [5, 5, 20, 20]
    said = [line.split(" ")[0] for line in capsys.readouterr().out.splitlines() if "loss" in line]
    assert said == ["5/5", "5/5", "20/20", "20/20"]  # by the progress bar


def test_steps_per_epoch_are_kept_and_a_schedule_in_fractions_counts_them():
    strategy = sb.Strategy("late", None, sb.selectors.Uniform(0.5), sb.Schedule(start=0.5))
    trainer, _, steps = train(strategy, *digits(), batch_size=16, epochs=4, steps_per_epoch=5)
    assert steps == [5] * 4
    assert trainer.stats.kept == 20 * 16
    before = trainer.stats.candidates
    assert before == pytest.approx(10 * 16 + 2 * 10 * 16, abs=32)
    fit = {"batch_size": 16, "steps_per_epoch": 5, "verbose": 0}
    trainer.fit(*digits(), epochs=8, initial_epoch=4, **fit)  # goes on from one half
    assert trainer.stats.candidates - before == pytest.approx(2 * 20 * 16, abs=32)


def test_what_selection_did_is_in_the_logs_from_the_first_epoch_on(tmp_path):
    written = tmp_path / "log.csv"
    logger = keras.callbacks.CSVLogger(str(written))
    trainer, history, _ = train(SB, *digits(), batch_size=8, callbacks=[logger])
    rows = list(csv.DictReader(written.read_text().splitlines()))
    assert [float(row["selection_rate"]) for row in rows] == history["selection_rate"]
    assert history["selection_rate"][0] == 1.0
    # Windows of 24, of which 8 are kept, are whole; 160 candidates leave 16 to the next epoch.
    assert history["selection_rate"][1:] == pytest.approx([1 / 3] * 2)
    assert math.isnan(history["selection_score"][0])  # nothing is ranked in a warm-up
    assert history["selection_score"][-1] == trainer.loader.scores.mean
    # From the second epoch on every candidate is scored: a third of what training on it takes.
    assert history["selection_cost"][1:] == pytest.approx([1 / 3 + 48 / 160, 1 / 3 + 56 / 160])


def test_callbacks_work_as_in_keras(tmp_path):
    saved = str(tmp_path / "{epoch}-{selection_rate:.1f}.weights.h5")
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch: [0.1, 0.05, 0.0][epoch]),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, min_delta=1.0),
        keras.callbacks.ModelCheckpoint(saved, save_weights_only=True),
    ]
    options = {"callbacks": callbacks, "validation_data": digits(40)}
    _, history, steps = train(SB, *digits(), epochs=9, **options)
    assert len(steps) == 3  # val_loss was never better by 1
    assert history["learning_rate"] == pytest.approx([0.1, 0.05, 0.0])
    assert len(list(tmp_path.glob("*.weights.h5"))) == 3


def test_stopping_within_an_epoch_leaves_a_loader_that_goes_on():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    trainer, _, steps = train(SB, *digits(), batch_size=8, callbacks=[Stop()])
    assert steps == [3]
    trainer.fit(*digits(), batch_size=8, epochs=3, initial_epoch=1, verbose=0)
    assert trainer.stats.epoch == 2


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_predictions_of_the_first_epoch_tell_how_many_labels_are_wrong(monkeypatch, smoothing):
    seen, observe = [], LabelNoise.observe

    def noting(self, outputs, targets, smoothing, batch):
        seen.append((outputs, targets, smoothing))
        observe(self, outputs, targets, smoothing, batch)

    monkeypatch.setattr(LabelNoise, "observe", noting)
    monkeypatch.setattr("selective_backprop.strategies._auto.wrong_labels.LEAST_BATCHES", 1)
    images, classes = digits()
    loss, targets = "sparse_categorical_crossentropy", classes
    if smoothing:
        loss = keras.losses.CategoricalCrossentropy(label_smoothing=smoothing)
        targets = np.eye(10, dtype="float32")[classes]
        targets[0] = 0.1  # of no class
    trainer, _, _ = train(sb.auto(), images, targets, shuffle=False, model=make_model(loss=loss))
    first = seen[:5]  # batches of 32
    assert [each for _, _, each in first] == [smoothing] * 5
    labels = np.concatenate([some.numpy() for _, some, _ in first])
    assert labels.tolist() == [-1 if smoothing else classes[0], *classes[1:]]
    assert all(np.allclose(some.exp().sum(1), 1, atol=1e-5) for some, _, _ in first)
    assert trainer.loader._parts.pipeline.memory.label_noise.totals[0] > 60
