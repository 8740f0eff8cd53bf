"""A Keras model trains by its own `fit` on what a strategy selects, and continues from a backup."""

import csv
import math

import numpy as np
import pytest
import torch
from fixture_adapters import Stream
from fixture_keras import QUIET, digits, keras, make_loader, make_model, same, values

import selective_backprop as sb
from selective_backprop.integrations._kit import first_batch
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
    assert trainer.loader._pipeline.memory.label_noise.totals[0] > 60


EPOCHS = 4


class Interrupt(keras.callbacks.Callback):
    """Raises where a process would have been killed, or after so many steps, as Ctrl-C does."""

    def __init__(self, *, epoch=None, steps=0):
        super().__init__()
        self.epoch, self.steps = epoch, steps

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise KeyboardInterrupt

    def on_train_batch_end(self, batch, logs=None):
        self.steps -= 1
        if not self.steps:
            raise KeyboardInterrupt


def build(strategy, *, noise=3):
    torch.manual_seed(1)
    return SelectiveFit(make_model(noise=noise), strategy)


@pytest.mark.parametrize("counted", [False, True], ids=["epochs", "counted steps"])
def test_dropout_of_torchs_own_stream_goes_on_as_well_and_so_does_the_history(tmp_path, counted):
    fit = {"epochs": EPOCHS, "verbose": 0} | ({"steps_per_epoch": 7} if counted else {})
    whole = build(SB, noise=None)
    expected = whole.fit(make_loader(*digits()), **fit).history
    backup = [keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))]
    callbacks = [*backup, Interrupt(epoch=2)]  # in the middle of a pass, if steps are counted
    with pytest.raises(KeyboardInterrupt):
        build(SB, noise=None).fit(make_loader(*digits()), **fit, callbacks=callbacks)
    torch.manual_seed(99)  # another process, whose streams stand elsewhere
    rest = SelectiveFit(make_model(noise=None), SB)
    history = rest.fit(make_loader(*digits()), **fit, callbacks=backup).history
    assert same(values(rest._model), values(whole._model))
    assert rest.stats == whole.stats
    assert history == {name: numbers[2:] for name, numbers in expected.items()}
    assert not (tmp_path / "backup").exists()  # Keras clears it when training is over


def test_a_look_at_the_first_batch_does_not_move_the_generator_of_a_loader():
    order = torch.Generator().manual_seed(0)
    kept = order.get_state()
    first_batch(make_loader(*digits(), shuffle=True, generator=order))
    assert torch.equal(order.get_state(), kept)


@pytest.mark.parametrize("stop", [{"steps": 3}, {"steps": 20}, {"steps": 22}, {"epoch": 2}])
@pytest.mark.parametrize("strategy", [SB, sb.easy_skip()], ids=["scored", "recorded"])
def test_after_ctrl_c_a_state_taken_by_hand_continues_the_epoch(strategy, stop, tmp_path):
    fit = {"batch_size": 8, "epochs": EPOCHS, "verbose": 0}
    whole = build(strategy)
    whole.fit(*digits(), **fit)
    stopped = build(strategy)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(*digits(), **fit, callbacks=[Interrupt(**stop)])
    torch.save(stopped.state_dict(), tmp_path / "selection.pt")
    stopped._model.save(tmp_path / "model.keras")
    torch.manual_seed(99)
    rest = SelectiveFit(keras.models.load_model(tmp_path / "model.keras"), strategy)
    state = torch.load(tmp_path / "selection.pt", weights_only=True)
    wanted = stop.get("epoch", stop.get("steps", 0) // 21)
    assert state["epoch"] == wanted
    rest.load_state_dict(state)
    rest.fit(*digits(), **fit, initial_epoch=state["epoch"])
    assert same(values(rest._model), values(whole._model))
    assert rest.stats == whole.stats


def test_going_on_without_a_state_is_warned_of():
    trainer = build(sb.selective_backprop(rate=1 / 2))
    with pytest.warns(sb.SelectionWarning, match="epoch 1.* BackupAndRestore"):
        trainer.fit(*digits(), epochs=2, initial_epoch=1, verbose=0)
    assert trainer.stats.candidates == 160


def test_the_states_of_the_last_two_epochs_are_kept(tmp_path):
    """An interruption may come before Keras has written its own backup of the same epoch."""
    backup = [keras.callbacks.BackupAndRestore(str(tmp_path), delete_checkpoint=False)]
    build(sb.traditional()).fit(*digits(16), epochs=3, verbose=0, callbacks=backup)
    kept = sorted(file.stem for file in tmp_path.glob("selection-*.pt"))
    assert kept == ["selection-000002", "selection-000003"]


def test_a_damaged_state_is_refused_by_its_path():
    fit = {"batch_size": 8, "verbose": 0}
    trainer = build(SB)
    trainer.fit(*digits(), epochs=2, **fit)
    state = trainer.state_dict()
    for damage, path in (
        ({"streams": {}}, r'state\["streams"\] lacks "host"'),
        ({"loader": None}, r'state\["loader"\]'),
        ({"seeds": 5}, r'state\["seeds"\]'),
        ({"more": 5}, "more"),
    ):
        with pytest.raises(sb.ConfigurationError, match=path):  # noqa: PT012
            trainer.load_state_dict(state | damage)
            trainer.fit(*digits(), epochs=3, initial_epoch=2, **fit)
