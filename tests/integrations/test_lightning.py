"""Under Lightning, what is trained on is what a loop of one's own would train on."""

import functools

import pytest
import torch
from torch import nn

import selective_backprop as sb

pytest.importorskip("lightning")

import fixture_lightning as lit
from fixture_adapters import Stream
from fixture_lightning import Digits, fit, loader_of, make_trainer, passes_of, quietly, same_weights
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Subset

from selective_backprop.integrations.lightning import LightningLoader, selected_loss

pytestmark = quietly

COINS = sb.selective_backprop(rate=1 / 3, draw="bernoulli")
SB = sb.selective_backprop(rate=1 / 3)
# What draws by an epoch's recorded losses does not mind that a batch is fetched ahead.
SAME = {
    **{"traditional": sb.traditional(), "random": sb.random_backprop(1 / 3), "selective": SB},
    **{"infobatch": sb.infobatch(), "easy-skip": sb.easy_skip()},
}


def train_by_hand(strategy, kind=Digits):
    module = kind(strategy)
    torch.manual_seed(0)
    options = {"epochs": 3, "with_selection": True}
    loader = sb.SelectiveLoader(loader_of(), module.net, module.loss_fn, strategy, **options)
    optimizer, loss_fn = module.configure_optimizers(), loader.loss_fn
    for _ in range(3):
        for (inputs, targets), selection in loader:
            module.trained.append(selection.indices.tolist())
            optimizer.zero_grad()
            loss_fn(module.net(inputs), targets).backward()
            optimizer.step()
    return module, loader


@functools.cache
def fitted(name):
    """A training that several tests compare with: module, trainer, and the loader's counts."""
    module, trainer = fit(SAME[name], limit_val_batches=0)
    return module, trainer, passes_of(trainer).loader.stats


@pytest.mark.parametrize("name", SAME)
def test_training_is_that_of_a_loop_of_one_s_own_bit_for_bit(name):
    bare, loader = train_by_hand(SAME[name])
    module, _, stats = fitted(name)
    assert module.trained == bare.trained
    assert same_weights(module, bare)
    assert stats == loader.stats


@pytest.mark.parametrize("strategy", [SB, COINS], ids=["sb", "coins"])
def test_validation_comes_at_epochs_ends_after_batches_of_all_epochs_or_a_time(strategy):
    module, _ = fit(strategy)
    counts = module.batches_by_epoch()
    assert module.validated == [sum(counts[: epoch + 1]) for epoch in range(3)]
    module, _ = fit(strategy, val_check_interval=10, check_val_every_n_epoch=None)
    assert module.validated == list(range(10, len(module.trained) + 1, 10))
    module, _ = fit(strategy, val_check_interval="00:00:00:00", max_epochs=2)
    assert module.validated == list(range(1, len(module.trained) + 1))


def test_validation_comes_at_fractions_of_each_epoch_s_own_length_or_after_batches_of_full_ones():
    module, _ = fit(SB, val_check_interval=0.5)
    assert module.batches_by_epoch() == [25, 8, 8]
    assert module.validated == [12, 24, 29, 33, 37, 41]
    module, _ = fit(sb.traditional(), val_check_interval=10, max_epochs=2)
    assert module.validated == [10, 20, 35, 45]


class Unnoted(Digits):
    """Notes no indices, because a stream has none."""

    def note(self, inputs):
        self.trained.append([len(inputs)])
        self.epochs.append(self.current_epoch)


@pytest.mark.filterwarnings("ignore:.*IterableDataset:UserWarning")
def test_an_epoch_of_a_stream_ends_after_the_length_it_states_and_its_batches_are_selected_from():
    class Stating(Stream):
        def __len__(self):
            return 80

    class Streaming(Unnoted):
        def train_dataloader(self):
            if self.strategy is SB:
                whole = Stream([lit.DATA[at : at + 20] for at in (0, 20, 40)])
                loader, size = DataLoader(whole, batch_size=None), {"batch_size": 10}
            else:
                loader = loader_of(Stating(Subset(lit.DATA, range(100))), shuffle=False)
                size = {}
            return LightningLoader(loader, self, self.loss_fn, self.strategy, **size)

    module, _ = fit(sb.traditional(), kind=Streaming)
    assert module.batches_by_epoch() == [5, 5, 5]
    assert module.validated == [5, 10, 15]
    module, _ = fit(SB, kind=Streaming)
    assert module.trained == [[10]] * (6 + 2 + 2)


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"limit_train_batches": 5}, [5, 5, 5]),
        ({"limit_train_batches": 0.5}, [12, 4, 4]),
        ({"max_steps": 30, "max_epochs": -1}, [25, 5]),
        ({"fast_dev_run": 2}, [2]),
        ({"max_epochs": 2, "num_sanity_val_steps": 2}, [25, 8]),
    ],
)
def test_the_trainer_s_limits_hold(options, batches):
    module, trainer = fit(SB, **options)
    assert module.batches_by_epoch() == batches
    assert trainer.reload_dataloaders_every_n_epochs == 0


def test_the_trainer_s_steps_tell_how_far_training_is():
    schedule = sb.Schedule(start=0.5)
    strategy = sb.Strategy("late", sb.scorers.Forward(), sb.selectors.Top(1 / 4), schedule)
    _, trainer = fit(strategy, max_steps=20, max_epochs=-1)
    stats = passes_of(trainer).loader.stats
    # Ten steps on everything; then ten on a quarter, of which one had been fetched before.
    assert stats.candidates - stats.scored + 16 == pytest.approx(10 * 16, abs=2 * 16)
    _, trainer = fit(strategy, max_epochs=2)
    assert passes_of(trainer).loader.progress == 1.0


def test_the_loader_may_be_given_to_fit_or_by_a_data_module_and_name_a_net_or_losses():
    from_hook, *_ = fitted("selective")

    def losses(net, batch):
        return nn.functional.cross_entropy(net(batch[0]), batch[1], reduction="none")

    def loader(module, **options):
        return LightningLoader(loader_of(), module, module.loss_fn, SB, **options)

    class Data(LightningDataModule):
        def train_dataloader(self):
            return loader(self.trainer.lightning_module)

    for given in (
        lambda module: {"train_dataloaders": loader(module)},
        lambda module: {"train_dataloaders": loader(module, net=module.net, losses=losses)},
        lambda _: {"datamodule": Data()},
    ):
        module = Digits(SB)
        torch.manual_seed(0)
        make_trainer(limit_val_batches=0).fit(module, **given(module))
        assert same_weights(module, from_hook)


TYPES = {"bf16-true": (torch.bfloat16, torch.bfloat16), "64-true": (torch.float64, torch.float64)}
TYPES |= {"bf16-mixed": (torch.float32, torch.bfloat16)}  # of inputs and outputs


@pytest.mark.parametrize("precision", TYPES)
def test_candidates_are_scored_in_the_trainer_s_precision_after_a_transfer_s_hooks(precision):
    seen = set()

    class Scaled(Digits):
        def note(self, inputs):
            assert float(inputs.max()) > 1.5

        def on_after_batch_transfer(self, batch, dataloader_idx):
            batch[0].mul_(2)  # in place, which must not be seen twice
            return batch

        def forward(self, inputs):
            assert 1.5 < float(inputs.max()) <= 2.0
            made = self.net(inputs)
            if not self.net.training:
                seen.add((inputs.dtype, made.dtype))
            return made

    module = Scaled(sb.selective_backprop(rate=1 / 3, warmup_epochs=0))
    make_trainer(precision=precision, max_epochs=1, limit_val_batches=0).fit(module)
    assert seen == {TYPES[precision]}
    assert module.trainer.global_step == 8


def test_rate_cost_and_scores_are_logged_and_fit_that_is_called_again_goes_on():
    module, trainer = fit(SB, max_epochs=2, limit_val_batches=0)
    logged, stats = trainer.callback_metrics, passes_of(trainer).loader.stats
    assert float(logged["selection/rate"]) == pytest.approx(1 / 3)  # of whole windows
    assert float(logged["selection/cost"]) == stats.scored + 3 * stats.kept
    assert float(logged["selection/plain_cost"]) == 3 * 800
    assert 0 < float(logged["selection/score_mean"]) < 2.5
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module)
    stats = passes_of(trainer).loader.stats
    assert (stats.epoch, stats.candidates) == (2, 1200)
    assert stats.batches == trainer.global_step
    _, trainer, _ = fitted("easy-skip")
    assert 0 < float(trainer.callback_metrics["selection/score_mean"]) < 2.5


@pytest.mark.parametrize(("name", "least"), [("selective", 8), ("easy-skip", 20)])
def test_fit_that_is_called_again_after_a_failure_begins_the_epoch_again(name, least):
    class Failing(Digits):
        def training_step(self, batch, number):
            if len(self.trained) == 30 and not self.validated[1:]:
                self.validated.append(30)
                raise RuntimeError
            return super().training_step(batch, number)

    module, trainer = Failing(SAME[name]), make_trainer()
    torch.manual_seed(0)
    with pytest.raises(RuntimeError):
        trainer.fit(module)
    trainer.fit(module)
    _, second, third = module.batches_by_epoch()
    assert second >= 5 + least
    assert module.validated == [25, 30, 25 + second, 25 + second + third]
    assert passes_of(trainer).loader.stats.epoch == 2


def test_manual_optimisation_clipping_and_accumulated_gradients_go_as_ever():
    class Manual(Digits):
        def __init__(self, strategy):
            super().__init__(strategy)
            self.automatic_optimization = False

        def training_step(self, batch, number):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, number))
            optimizer.step()

    for name in ("selective", "easy-skip"):
        automatic, *_ = fitted(name)
        module, _ = fit(SAME[name], kind=Manual, limit_val_batches=0)
        assert same_weights(module, automatic)
    clipped, trainer = fit(SB, limit_val_batches=0, gradient_clip_val=0.1)
    assert trainer.global_step == len(clipped.trained)
    assert not same_weights(clipped, automatic)
    for strategy in (SB, COINS):  # nothing is left at an epoch's end
        module, trainer = fit(strategy, accumulate_grad_batches=2)
        assert trainer.global_step == sum(-(-count // 2) for count in module.batches_by_epoch())


class Scheduled(Digits):
    steps, rates = 0, ()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        steps = self.steps or self.trainer.estimated_stepping_batches + 1
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def on_train_batch_end(self, outputs, batch, number):
        self.rates = (*self.rates, self.optimizers().param_groups[0]["lr"])

    def on_train_end(self):
        self.scheduled = self.lr_schedulers().last_epoch


@pytest.mark.parametrize(("accumulated", "max_steps"), [(1, -1), (2, 39)])
@pytest.mark.parametrize("strategy", [sb.auto(), SB, COINS], ids=["auto", "warm-up", "coins"])
def test_a_schedule_for_all_candidates_comes_to_its_end(strategy, accumulated, max_steps):
    module = Scheduled(strategy)
    module.steps = 3 * -(-25 // accumulated)  # Lightning steps at the end of an epoch, too
    torch.manual_seed(0)
    options = {"accumulate_grad_batches": accumulated, "max_steps": max_steps}
    make_trainer(limit_val_batches=0, **options).fit(module)
    assert max(module.rates) > 0.09
    assert module.lr_schedulers().get_last_lr()[0] < 0.02


def test_a_schedule_for_the_steps_that_are_taken_is_left_alone():
    strategy = sb.selective_backprop(1 / 3, warmup_epochs=0)
    module, trainer = fit(strategy, kind=Scheduled, limit_val_batches=0)
    assert module.scheduled == trainer.global_step < 30


class Smoothed(Digits):
    """Trains on smoothed labels, and shows its outputs unless it is silent."""

    silent = False

    def __init__(self, strategy):
        super().__init__(strategy)
        self.loss_fn = nn.CrossEntropyLoss(label_smoothing=0.3)

    def training_step(self, batch, number):
        inputs, targets = batch
        losses_fn = nn.CrossEntropyLoss(label_smoothing=0.3, reduction="none")
        outputs = self(inputs)
        self.note(inputs)
        shown = () if self.silent else (outputs,)
        return selected_loss(self, losses_fn(outputs, targets), targets, *shown)


def test_with_outputs_a_smoothed_loss_is_read_as_by_the_loader_s_own_loss(monkeypatch):
    monkeypatch.setattr("selective_backprop.strategies._auto.wrong_labels.LEAST_BATCHES", 1)
    bare, loader = train_by_hand(sb.auto(), Smoothed)
    module, trainer = fit(sb.auto(), kind=Smoothed, limit_val_batches=0)
    assert same_weights(module.net, bare.net)
    read, expected = (
        each._pipeline.memory.label_noise.totals for each in (passes_of(trainer).loader, loader)
    )
    assert torch.equal(read, expected)
    assert read[0] > 50  # rows


def test_a_smoothed_loss_without_outputs_is_warned_of(monkeypatch):
    monkeypatch.setattr(Smoothed, "silent", True)
    with pytest.warns(sb.SelectionWarning, match="smooths labels.* targets, outputs"):
        fit(sb.auto(), kind=Smoothed, max_epochs=2, limit_val_batches=0)
