"""A small Lightning training on real digits; imported where Lightning is installed."""

import logging
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from selective_backprop.integrations.lightning import (
    LightningLoader,
    SelectionCallback,
    selected_loss,
)

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

# What Lightning and torch say of one another, of loaders without workers, and of checkpoints'
# other callbacks.
quietly = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning",
    "ignore:The dirpath has changed:UserWarning",
    "ignore:Be aware that when using `ckpt_path`:UserWarning",
)

PIXELS, LABELS = load_digits(return_X_y=True)
DATA = TensorDataset(torch.tensor(PIXELS / 16, dtype=torch.float32), torch.tensor(LABELS))
TRAIN = torch.utils.data.Subset(DATA, range(400))
VALID = torch.utils.data.Subset(DATA, range(400, 500))


def loader_of(data: Any = TRAIN, **options: Any) -> DataLoader:
    return DataLoader(data, **{"batch_size": 16, "shuffle": True} | options)


class Digits(LightningModule):
    """Notes the indices of every batch that it trains on, and when it validates."""

    def __init__(self, strategy: sb.Strategy, **options: Any) -> None:
        super().__init__()
        self.strategy, self.options = strategy, options
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layers = nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10)
            self.net = nn.Sequential(*layers)
        self.loss_fn = nn.CrossEntropyLoss()
        self.trained: list[list[int]] = []
        self.epochs: list[int] = []
        self.validated: list[int] = []

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def train_dataloader(self) -> LightningLoader:
        return LightningLoader(loader_of(), self, self.loss_fn, self.strategy, **self.options)

    def training_step(self, batch: Any, number: int) -> Tensor:
        inputs, targets = batch
        loss = selected_loss(
            self, nn.functional.cross_entropy(self(inputs), targets, reduction="none")
        )
        self.note(inputs)
        return loss

    def note(self, inputs: Tensor) -> None:
        selection = passes_of(self.trainer).selection
        self.trained.append(selection.indices.tolist())
        self.epochs.append(self.current_epoch)
        assert torch.equal(inputs.float(), DATA.tensors[0][selection.indices])

    def val_dataloader(self) -> DataLoader:
        return loader_of(VALID, shuffle=False, batch_size=100)

    def validation_step(self, batch: Any, number: int) -> None:
        self.validated.append(len(self.trained))
        inputs, targets = batch
        self.log("error", (self(inputs).argmax(1) != targets).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def batches_by_epoch(self) -> list[int]:
        return [self.epochs.count(epoch) for epoch in range(max(self.epochs) + 1)]


def make_trainer(*callbacks: Any, **options: Any) -> Trainer:
    quiet = {
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": any("Checkpoint" in type(part).__name__ for part in callbacks),
        "num_sanity_val_steps": 0,
        "max_epochs": 3,
    }
    return Trainer(callbacks=[SelectionCallback(), *callbacks], **quiet | options)


def fit(strategy: sb.Strategy, /, *callbacks: Any, seed: int = 0, ckpt: Any = None, **options: Any):
    """Return a trained module, and its trainer."""
    module, trainer = Digits(strategy), make_trainer(*callbacks, **options)
    torch.manual_seed(seed)
    trainer.fit(module, ckpt_path=ckpt)
    return module, trainer


def passes_of(trainer: Trainer) -> Any:
    [found] = [part for part in trainer.callbacks if isinstance(part, SelectionCallback)]
    return found.running


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))
