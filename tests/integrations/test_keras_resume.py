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


SB = sb.selective_backprop(rate=1 / 3)


def build(strategy, *, noise=3):
    torch.manual_seed(1)
    return SelectiveFit(make_model(noise=noise), strategy)


def backed_up(folder):
    return [keras.callbacks.BackupAndRestore(str(folder / "backup"))]


@pytest.mark.parametrize("counted", [False, True], ids=["epochs", "counted steps"])
def test_dropout_of_torchs_own_stream_goes_on_as_well_and_so_does_the_history(tmp_path, counted):
    fit = {"epochs": EPOCHS, "verbose": 0} | ({"steps_per_epoch": 7} if counted else {})
    whole = build(SB, noise=None)
    expected = whole.fit(make_loader(*digits()), **fit).history
    backup = backed_up(tmp_path)
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

    whole, backup = train(), backed_up(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(*backup, Interrupt(epoch=2))
    assert same(train(*backup), whole)


@pytest.mark.parametrize(
    "stop", [{"steps": 3}, {"steps": 20}, {"steps": 22}, {"epoch": 2}], ids=str
)
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
    assert state["epoch"] == state["loader"]["next_epoch"] == wanted
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
