"""What cannot work is refused before anything is trained on, with what to write instead."""

from types import SimpleNamespace

import pytest
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb

pytest.importorskip("lightning")

from fixture_lightning import TRAIN, Digits, loader_of, make_trainer, quietly, same_weights
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.data import DistributedSampler
from unhooked import unhooked

from selective_backprop.integrations._lightning._callback import check_trainer
from selective_backprop.integrations._lightning._loader import as_lightning_would
from selective_backprop.integrations.lightning import LightningLoader, selected_loss

pytestmark = quietly

SELECTIVE = sb.selective_backprop(rate=1 / 3)
LOSS_FN = nn.CrossEntropyLoss()
COINS = sb.selective_backprop(rate=1 / 3, draw="bernoulli")


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        (SELECTIVE, {"overfit_batches": 2}, "overfit_batches=2.*Subset"),
        (SELECTIVE, {"reload_dataloaders_every_n_epochs": 2}, "every_n_epochs=2.*Leave this"),
        (SELECTIVE, {"max_epochs": 1}, "warmup_epochs=1"),
        (COINS, {"val_check_interval": 0.5}, "val_check_interval=0.5.* int.*every_n_epoch=None"),
        (COINS, {"val_check_interval": 4}, "val_check_interval=4.* check_val_every_n_epoch=None"),
        (SELECTIVE, {"val_check_interval": 4}, "fewer than 4.* check_val_every_n_epoch=None"),
        (COINS, {"limit_train_batches": 0.5}, "limit_train_batches=0.5.* int"),
        (sb.easy_skip(), {"max_epochs": -1, "max_time": "00:00:01:00"}, "max_epochs= or max_"),
    ],
)
def test_a_trainer_that_cannot_work_is_refused(strategy, options, message):
    module = Digits(strategy)
    with pytest.raises(sb.ConfigurationError, match=message):
        make_trainer(**options).fit(module)
    assert not module.trained


def test_a_strategy_of_the_trainer_that_shards_the_model_is_refused():
    trainer = SimpleNamespace(strategy=FSDPStrategy(), overfit_batches=0)
    trainer.reload_dataloaders_every_n_epochs = 0
    with unhooked(), pytest.raises(sb.ConfigurationError, match=r"FSDPStrategy.*single device"):
        check_trainer(trainer, Digits(SELECTIVE))


class Fetching(Digits):
    def training_step(self, dataloader_iter):
        return None


class Forgetful(Digits):
    def training_step(self, batch, number):
        inputs, targets = batch
        return self.loss_fn(self(inputs), targets)


class Numbers(Digits):
    def training_step(self, batch, number):
        inputs, targets = batch
        targets = targets.float()
        return selected_loss(self, (self(inputs)[:, 0] - targets) ** 2, targets)


class Averaging(Digits):
    def training_step(self, batch, number):
        return super().training_step((batch[0][:3], batch[1][:3]), number)


LEFT_OUT = r"selected_loss\(self, losses, targets\)"


@pytest.mark.parametrize(
    ("kind", "strategy", "message"),
    [
        (Fetching, SELECTIVE, r"Write training_step\(batch, batch_idx\)"),
        (Forgetful, sb.infobatch(), LEFT_OUT),
        (Forgetful, sb.kath18(), LEFT_OUT),
        (Numbers, sb.auto(), r"targets from [0-9] to [0-9] .*recorded_sb"),
        (Averaging, sb.easy_skip(), r"\(3,\).*batch of 16"),
    ],
)
def test_a_step_that_cannot_be_selected_for_is_refused_before_any_change(kind, strategy, message):
    module = kind(strategy)
    with pytest.raises(sb.SelectiveBackpropError, match=message):
        make_trainer().fit(module)
    assert same_weights(module, kind(strategy))


def test_a_loader_without_the_callback_and_the_callback_without_a_loader_are_refused():
    module = Digits(SELECTIVE)
    with pytest.raises(sb.ConfigurationError, match=r"callbacks=\[SelectionCallback\(\)\]"):
        Trainer(accelerator="cpu", logger=False, enable_checkpointing=False).fit(module)
    for given in (lambda _: loader_of(), lambda loader: {"one": loader, "other": loader_of()}):
        module = Digits(SELECTIVE)
        with pytest.raises(sb.ConfigurationError, match=r"single LightningLoader\(loader, self"):
            make_trainer().fit(module, given(module.train_dataloader()))


class Formless(LightningModule):
    pass


def wrap(module, loader=None, loss_fn=LOSS_FN, strategy=SELECTIVE, **options):
    return LightningLoader(loader or loader_of(), module, loss_fn, strategy, **options)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: iter(wrap(Digits(SELECTIVE))), r"only Trainer.fit can iterate"),
        (lambda: wrap(Digits(SELECTIVE), wrap(Digits(SELECTIVE))), "got LightningLoader"),
        (lambda: wrap(Formless()), r"net=self.net"),
        (lambda: wrap(nn.Linear(2, 2)), "pass self"),
        (lambda: wrap(Digits(SELECTIVE), pad={"0": "0"}), "pad="),
    ],
)
def test_what_cannot_be_wrapped_is_told_before_there_is_a_trainer(ask, message):
    with unhooked(), pytest.raises(sb.SelectiveBackpropError, match=message):
        ask()


def test_a_module_without_a_net_will_do_where_nothing_is_scored_but_not_of_the_other_package():
    wrap(Formless(), loss_fn=None, strategy=sb.random_backprop(1 / 3))
    pytorch_lightning = pytest.importorskip("pytorch_lightning")
    with pytest.raises(sb.ConfigurationError, match=r"import lightning.pytorch"), unhooked():
        wrap(pytorch_lightning.LightningModule())


TWO = {"accelerator": "cpu", "strategy": "ddp", "devices": 2}
TWO |= {"logger": False, "enable_checkpointing": False}


def test_a_loader_is_dealt_out_to_the_ranks_as_lightning_would(monkeypatch):
    trainer = Trainer(**TWO)
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    loader = loader_of(drop_last=True)
    dealt = as_lightning_would(loader, trainer, sb.auto())
    expected = DistributedSampler(TRAIN, 2, 0, shuffle=True, seed=7)
    assert [index for batch in dealt.batch_sampler for index in batch] == list(expected)[:192]
    assert (len(dealt), len(loader)) == (12, 25)
    assert (dealt.worker_init_fn is None, loader.worker_init_fn is None) == (False, True)
    own = DataLoader(TRAIN, 16, sampler=expected)
    assert as_lightning_would(own, trainer, sb.auto()).batch_sampler is own.batch_sampler
    # One that is not to be dealt out is taken whole, if nothing is remembered by index.
    trainer = Trainer(**TWO, use_distributed_sampler=False)
    whole = as_lightning_would(loader, trainer, SELECTIVE)
    assert whole.batch_sampler is loader.batch_sampler
    with pytest.raises(sb.ConfigurationError, match=r"use_distributed_sampler=False.* whole data"):
        as_lightning_would(loader, trainer, sb.auto())
