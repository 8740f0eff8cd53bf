"""What cannot work is refused before anything is trained on, with what to write instead."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler

import selective_backprop as sb

pytest.importorskip("lightning")

from fixture_lightning import TRAIN, Digits, fit, loader_of, make_trainer, quietly, same_weights
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.data import DistributedSampler
from unhooked import unhooked

from selective_backprop.integrations._lightning._loader import as_lightning_would
from selective_backprop.integrations._lightning._trainer import check_trainer
from selective_backprop.integrations.lightning import LightningLoader, selected_loss

pytestmark = quietly

SELECTIVE = sb.selective_backprop(rate=1 / 3)
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
        (
            sb.easy_skip(),
            {"max_epochs": -1, "max_time": "00:00:01:00"},
            "max_epochs= or max_steps=",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_trainer_that_cannot_work_is_refused(strategy, options, message):
    module = Digits(strategy)
    with pytest.raises(sb.ConfigurationError, match=message):
        make_trainer(**options).fit(module)
    assert not module.trained


@pytest.mark.parametrize("wrong", ["0", None, [0]])
def test_a_padding_that_is_no_number_is_refused_before_there_is_a_trainer(wrong):
    module = Digits(SELECTIVE)
    with unhooked(), pytest.raises(sb.ConfigurationError, match="pad="):
        LightningLoader(loader_of(TRAIN), module, module.loss_fn, SELECTIVE, pad={"0": wrong})


def test_a_strategy_of_the_trainer_that_shards_the_model_is_refused():
    trainer = SimpleNamespace(strategy=FSDPStrategy(), overfit_batches=0)
    trainer.reload_dataloaders_every_n_epochs = 0
    with unhooked(), pytest.raises(sb.ConfigurationError, match=r"FSDPStrategy.*single device"):
        check_trainer(trainer, Digits(SELECTIVE))


def test_a_step_that_fetches_its_own_batches_is_refused():
    class Fetching(Digits):
        def training_step(self, dataloader_iter):
            return None

    with pytest.raises(sb.ConfigurationError, match=r"Write training_step\(batch, batch_idx\)"):
        make_trainer().fit(Fetching(SELECTIVE))


@pytest.mark.parametrize("strategy", [sb.infobatch(), sb.kath18()], ids=lambda each: each.name)
def test_a_step_that_leaves_out_weights_or_losses_is_refused_before_it_changes_anything(strategy):
    class Forgetful(Digits):
        def training_step(self, batch, number):
            inputs, targets = batch
            return self.loss_fn(self(inputs), targets)

    module = Forgetful(strategy)
    with pytest.raises(sb.ConfigurationError, match=r"selected_loss\(self, losses, targets\)"):
        make_trainer().fit(module)
    assert same_weights(module, Forgetful(strategy))


def test_a_loss_that_is_no_cross_entropy_is_refused_at_the_first_batch():
    class Numbers(Digits):
        def training_step(self, batch, number):
            inputs, targets = batch
            targets = targets.float()
            return selected_loss(self, (self(inputs)[:, 0] - targets) ** 2, targets)

    module = Numbers(sb.auto())
    with pytest.raises(sb.LossError, match=r"targets from [0-9] to [0-9] .*recorded_sb"):
        make_trainer().fit(module)
    assert same_weights(module, Numbers(sb.auto()))


def test_a_loader_without_the_callback_and_the_callback_without_a_loader_are_refused():
    module = Digits(SELECTIVE)
    with pytest.raises(sb.ConfigurationError, match=r"callbacks=\[SelectionCallback\(\)\]"):
        Trainer(accelerator="cpu", logger=False, enable_checkpointing=False).fit(module)
    for given in (lambda _: loader_of(), lambda loader: {"one": loader, "other": loader_of()}):
        module = Digits(SELECTIVE)
        with pytest.raises(sb.ConfigurationError, match=r"single LightningLoader\(loader, self"):
            make_trainer().fit(module, given(module.train_dataloader()))


def test_a_loader_outside_of_fit_says_who_iterates_it():
    with pytest.raises(sb.LoaderError, match=r"only Trainer.fit can iterate"):
        iter(Digits(SELECTIVE).train_dataloader())
    with pytest.raises(sb.LoaderError, match=r"wrap .*inside"), unhooked():
        LightningLoader(
            Digits(SELECTIVE).train_dataloader(), Digits(SELECTIVE), None, sb.traditional()
        )


def test_a_module_that_cannot_be_scored_is_told_what_to_name():
    class Formless(LightningModule):
        pass

    with pytest.raises(sb.ConfigurationError, match=r"net=self.net"):
        LightningLoader(loader_of(), Formless(), nn.CrossEntropyLoss(), SELECTIVE)
    LightningLoader(loader_of(), Formless(), None, sb.random_backprop(1 / 3))
    with pytest.raises(sb.ConfigurationError, match="pass self"), unhooked():
        LightningLoader(loader_of(), nn.Linear(2, 2), nn.CrossEntropyLoss(), SELECTIVE)


def test_a_module_of_the_other_package_is_told_what_to_import():
    pytorch_lightning = pytest.importorskip("pytorch_lightning")
    with pytest.raises(sb.ConfigurationError, match=r"import lightning.pytorch"), unhooked():
        LightningLoader(
            loader_of(), pytorch_lightning.LightningModule(), nn.CrossEntropyLoss(), SELECTIVE
        )


def test_a_loader_is_dealt_out_to_the_ranks_as_lightning_would(monkeypatch):
    trainer = Trainer(
        accelerator="cpu", strategy="ddp", devices=2, logger=False, enable_checkpointing=False
    )
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    loader = loader_of(drop_last=True)
    dealt = as_lightning_would(loader, trainer, sb.auto())
    expected = DistributedSampler(TRAIN, 2, 0, shuffle=True, seed=7)
    assert [index for batch in dealt.batch_sampler for index in batch] == list(expected)[:192]
    assert len(dealt) == 12
    assert (dealt.worker_init_fn is None, loader.worker_init_fn is None) == (False, True)
    assert len(loader) == 25
    own = DataLoader(TRAIN, 16, sampler=expected)
    assert as_lightning_would(own, trainer, sb.auto()).batch_sampler is own.batch_sampler
    weighted = DataLoader(TRAIN, 16, sampler=WeightedRandomSampler(torch.ones(400), 400))
    with pytest.raises(sb.LoaderError, match=r"WeightedRandomSampler.*DistributedSampler"):
        as_lightning_would(weighted, trainer, sb.auto())


def test_a_loader_that_is_not_to_be_dealt_out_is_taken_whole_if_nothing_is_remembered_by_index():
    options = {"accelerator": "cpu", "strategy": "ddp", "devices": 2, "logger": False}
    options |= {"enable_checkpointing": False, "use_distributed_sampler": False}
    trainer, loader = Trainer(**options), loader_of()
    own = as_lightning_would(loader, trainer, SELECTIVE)
    assert own.batch_sampler is loader.batch_sampler
    with pytest.raises(sb.ConfigurationError, match=r"use_distributed_sampler=False.* whole data"):
        as_lightning_would(loader, trainer, sb.auto())
    weighted = DataLoader(TRAIN, 16, sampler=WeightedRandomSampler(torch.ones(400), 400))
    assert as_lightning_would(weighted, trainer, sb.auto()).sampler is weighted.sampler


def test_losses_of_another_number_than_rows_are_refused():
    class Averaging(Digits):
        def training_step(self, batch, number):
            return super().training_step((batch[0][:3], batch[1][:3]), number)

    with pytest.raises(sb.LossError, match=r"\(3,\).*batch of 16"):
        make_trainer().fit(Averaging(sb.easy_skip()))
    fit(sb.traditional(), max_epochs=1, limit_train_batches=1)
