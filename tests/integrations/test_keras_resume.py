"""Training that was interrupted goes on as if it had not been."""

import pytest
import torch
from fixture_keras import QUIET, digits, keras, make_loader, make_model, same, values

import selective_backprop as sb
from selective_backprop.integrations._kit import first_batch
from selective_backprop.integrations.keras import SelectiveFit

pytestmark = QUIET

EPOCHS = 4


class Interrupt(keras.callbacks.Callback):
    """Raises where a process would have been killed."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise KeyboardInterrupt


def build(strategy, *, noise=3):
    torch.manual_seed(1)
    return SelectiveFit(make_model(noise=noise), strategy)


def test_dropout_of_torchs_own_stream_goes_on_as_well_and_so_does_the_history(tmp_path):
    strategy, noise = sb.selective_backprop(rate=1 / 3), None
    fit = {"batch_size": 8, "epochs": EPOCHS, "verbose": 0}
    whole = build(strategy, noise=noise)
    expected = whole.fit(*digits(), **fit).history
    backup = [keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))]
    with pytest.raises(KeyboardInterrupt):
        build(strategy, noise=noise).fit(*digits(), **fit, callbacks=[*backup, Interrupt(2)])
    torch.manual_seed(99)  # another process, whose streams stand elsewhere
    rest = SelectiveFit(make_model(noise=noise), strategy)
    history = rest.fit(*digits(), **fit, callbacks=backup).history
    assert same(values(rest._model), values(whole._model))
    assert rest.stats == whole.stats
    assert history == {name: numbers[2:] for name, numbers in expected.items()}
    assert not (tmp_path / "backup").exists()  # Keras clears it when training is over


def test_the_generator_of_a_loader_goes_on_and_is_not_moved_before_training(tmp_path):
    def train(*callbacks):
        order = torch.Generator().manual_seed(0)
        loader = make_loader(*digits(), shuffle=True, generator=order)
        kept = order.get_state()
        first_batch(loader)
        assert torch.equal(order.get_state(), kept)
        trainer = build(sb.easy_skip())
        trainer.fit(loader, epochs=EPOCHS, verbose=0, callbacks=list(callbacks))
        return values(trainer._model)

    whole, backup = train(), keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
    with pytest.raises(KeyboardInterrupt):
        train(backup, Interrupt(2))
    assert same(train(backup), whole)


def test_steps_that_are_counted_go_on_in_the_middle_of_a_pass(tmp_path):
    fit = {"epochs": EPOCHS, "steps_per_epoch": 7, "verbose": 0}
    strategy = sb.selective_backprop(rate=1 / 3)
    whole = build(strategy)
    whole.fit(make_loader(*digits()), **fit)
    backup = [keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))]
    with pytest.raises(KeyboardInterrupt):
        build(strategy).fit(make_loader(*digits()), **fit, callbacks=[*backup, Interrupt(2)])
    rest = build(strategy)
    rest.fit(make_loader(*digits()), **fit, callbacks=backup)
    assert same(values(rest._model), values(whole._model))
    assert rest.stats == whole.stats


def test_a_state_taken_by_hand_can_be_saved_and_goes_on(tmp_path):
    strategy = sb.selective_backprop(rate=1 / 3)
    fit = {"batch_size": 8, "verbose": 0}
    whole = build(strategy)
    whole.fit(*digits(), epochs=2, **fit)
    torch.save(whole.state_dict(), tmp_path / "selection.pt")
    whole._model.save(tmp_path / "model.keras")
    whole.fit(*digits(), epochs=4, initial_epoch=2, **fit)
    rest = SelectiveFit(keras.models.load_model(tmp_path / "model.keras"), strategy)
    rest.load_state_dict(torch.load(tmp_path / "selection.pt", weights_only=True))
    rest.fit(*digits(), epochs=4, initial_epoch=2, **fit)
    assert same(values(rest._model), values(whole._model))
    assert rest.stats == whole.stats


class InterruptStep(keras.callbacks.Callback):
    """Presses Ctrl-C after so many steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        self.steps -= 1
        if not self.steps:
            raise KeyboardInterrupt


@pytest.mark.parametrize("steps", [3, 20, 22])
@pytest.mark.parametrize(
    "strategy", [sb.selective_backprop(rate=1 / 3), sb.easy_skip()], ids=["scored", "recorded"]
)
def test_after_ctrl_c_a_state_taken_by_hand_continues_the_epoch(strategy, steps, tmp_path):
    fit = {"batch_size": 8, "epochs": EPOCHS, "verbose": 0}
    whole = build(strategy)
    whole.fit(*digits(), **fit)
    stopped = build(strategy)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(*digits(), **fit, callbacks=[InterruptStep(steps)])
    torch.save(stopped.state_dict(), tmp_path / "selection.pt")
    stopped._model.save(tmp_path / "model.keras")
    torch.manual_seed(99)
    rest = SelectiveFit(keras.models.load_model(tmp_path / "model.keras"), strategy)
    state = torch.load(tmp_path / "selection.pt", weights_only=True)
    assert state["epoch"] == state["loader"]["next_epoch"] == steps // 21
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


@pytest.mark.parametrize(
    ("damage", "path"),
    [
        ({"streams": {}}, r'state\["streams"\] lacks "host"'),
        ({"loader": None}, r'state\["loader"\]'),
        ({"seeds": 5}, r'state\["seeds"\]'),
        ({"more": 5}, "more"),
    ],
)
def test_a_damaged_state_is_refused_by_its_path(damage, path):
    fit = {"batch_size": 8, "epochs": 2, "verbose": 0}
    trainer = build(sb.selective_backprop(rate=1 / 3))
    trainer.fit(*digits(), **fit)
    state = trainer.state_dict() | damage

    def go_on():
        trainer.load_state_dict(state)
        trainer.fit(*digits(), **{**fit, "epochs": 3}, initial_epoch=2)

    with pytest.raises(sb.ConfigurationError, match=path):
        go_on()
