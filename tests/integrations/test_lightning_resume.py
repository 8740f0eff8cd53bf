"""What Lightning's checkpoints hold is enough to go on as if nothing had happened."""

import functools
import signal

import pytest
import torch

import selective_backprop as sb

pytest.importorskip("lightning")

import fixture_lightning as lit
from fixture_adapters import Stopped
from fixture_lightning import Digits, fit, loader_of, make_trainer, passes_of, quietly, same_weights
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint

from selective_backprop.integrations.lightning import LightningLoader

pytestmark = quietly

STRATEGIES = {
    "selective": sb.selective_backprop(rate=1 / 3),
    "easy-skip": sb.easy_skip(),  # of an unknown length
}
LIMITED = {"limit_train_batches": 6}
MOMENTS = {
    "within an epoch": ({"every_n_train_steps": 28}, {}),
    "after the last validation": ({"save_on_train_epoch_end": False}, {}),
    "when an epoch is over": ({"save_on_train_epoch_end": True}, {}),
    "when a limited epoch is over": ({"save_on_train_epoch_end": True}, LIMITED),
    "after the last batch of a limited epoch": ({"every_n_train_steps": 6}, LIMITED),
    "by steps": ({"every_n_train_steps": 28}, {"max_steps": 35, "max_epochs": -1}),
}
ERRORS = {
    "in a step": {"inside": 29},
    "Ctrl-C": {"after": 29, "raises": SystemExit},
    "as data are read": {"reads": 450, "after": -1},
}


class Failing(Digits):
    """Fails after so many steps, in one, or as data are read so often, or is interrupted."""

    after, inside, reads, raises = 31, -1, 0, Stopped

    def train_dataloader(self):
        return LightningLoader(loader_of(self), self, self.loss_fn, self.strategy)

    def __len__(self):
        return len(lit.TRAIN)

    def __getitem__(self, index):
        self.reads -= 1
        if not self.reads:
            raise Stopped
        return lit.TRAIN[index]

    def training_step(self, batch, number):
        if self.trainer.global_step == self.inside:
            raise Stopped
        return super().training_step(batch, number)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.trainer.global_step == self.after:
            if self.raises is SystemExit:
                signal.raise_signal(signal.SIGINT)
            else:
                raise Stopped


@functools.cache
def whole_of(name, moment=""):
    """A training without interruption: the module, the loader's counts, and what was logged."""
    module, trainer = fit(STRATEGIES[name], **MOMENTS[moment][1] if moment else {})
    return module, passes_of(trainer).loader.stats, logged(trainer)


def logged(trainer):
    values = trainer.callback_metrics.items()
    return {name: float(value) for name, value in values if name.startswith("selection/")}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_training_goes_on_bit_for_bit_where_it_was_interrupted(name, moment, tmp_path):
    strategy, (when, options) = STRATEGIES[name], MOMENTS[moment]
    whole, stats, logs = whole_of(name, moment)
    torch.manual_seed(0)
    failing, keeping = Failing(strategy), ModelCheckpoint(tmp_path, save_top_k=-1, **when)
    if "limit_train_batches" in options:
        failing.after = 10
    with pytest.raises(Stopped):
        make_trainer(keeping, **options).fit(failing)
    [saved] = tmp_path.glob("*.ckpt")
    elsewhere = ModelCheckpoint(tmp_path / "resumed", **when)
    resumed, again = fit(strategy, elsewhere, seed=99, ckpt=saved, **options)
    assert 0 < len(resumed.trained) < len(whole.trained)
    assert resumed.trained == whole.trained[-len(resumed.trained) :]
    assert same_weights(resumed, whole)
    assert passes_of(again).loader.stats == stats
    assert logged(again) == logs


@pytest.mark.filterwarnings("ignore:.*ckpt_path=:UserWarning")
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_after_an_error_the_epoch_continues(name, error, tmp_path, monkeypatch, signals_as_usual):
    for key, value in ERRORS[error].items():
        monkeypatch.setattr(Failing, key, value)
    whole, *_ = whole_of(name)
    failed, trainer = Failing(STRATEGIES[name]), make_trainer(OnExceptionCheckpoint(tmp_path))
    torch.manual_seed(0)
    with pytest.raises(Failing.raises):
        trainer.fit(failed)
    resumed, _ = fit(STRATEGIES[name], seed=99, ckpt=tmp_path / "on_exception.ckpt")
    assert failed.trained + resumed.trained == whole.trained
    assert same_weights(resumed, whole)
    steps = len(failed.trained)
    assert [steps + after for after in resumed.validated] == whole.validated[1:]


def test_a_checkpoint_is_read_without_running_code(tmp_path):
    _, trainer = fit(STRATEGIES["easy-skip"], max_steps=20)
    state = trainer.callbacks[0].state_dict()
    torch.save(state, tmp_path / "state.pt")
    read = torch.load(tmp_path / "state.pt", weights_only=True)
    assert len(read["ranks"][0]["passes"]["ahead"]) == 1
    assert read["ranks"][0]["passes"]["taken"] == 20


def test_a_checkpoint_of_plain_training_is_taken_up_at_its_epoch(tmp_path):
    module, keeping = Digits(sb.traditional()), ModelCheckpoint(tmp_path)
    module.note = lambda inputs: None
    trainer = make_trainer(keeping, max_epochs=2)
    trainer.callbacks = [part for part in trainer.callbacks if part is not trainer.callbacks[0]]
    trainer.fit(module, Digits.val_dataloader(module))
    [saved] = tmp_path.glob("*.ckpt")
    resumed, again = fit(STRATEGIES["selective"], ckpt=saved)
    assert passes_of(again).loader.stats.epoch == 2
    assert len(resumed.trained) < 10  # no second warm-up


def test_the_selection_of_other_ranks_is_refused(tmp_path):
    fit(STRATEGIES["selective"], ModelCheckpoint(tmp_path), max_epochs=2)
    [saved] = tmp_path.glob("*.ckpt")
    checkpoint = torch.load(saved, weights_only=False)
    ranks = checkpoint["callbacks"]["SelectionCallback"]["ranks"]
    ranks.append(ranks[0])
    torch.save(checkpoint, saved)
    with pytest.raises(sb.ConfigurationError, match=r"of 2 ranks.* 1"):
        fit(STRATEGIES["selective"], ckpt=saved)
