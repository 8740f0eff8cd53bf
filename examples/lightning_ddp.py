"""Train on handwritten digits with Lightning's DDP strategy: python lightning_ddp.py."""

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

digits = load_digits()
pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)


class Digits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.loss_fn = nn.CrossEntropyLoss()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def train_dataloader(self) -> LightningLoader:
        examples = TensorDataset(pixels[:1400], labels[:1400])
        data = DataLoader(examples, batch_size=16, shuffle=True)
        return LightningLoader(data, self, self.loss_fn, sb.auto())

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        inputs, targets = batch
        losses = nn.functional.cross_entropy(self(inputs), targets, reduction="none")
        return selected_loss(self, losses, targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_epochs=8,
        callbacks=[SelectionCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    )
    digits_net = Digits()
    trainer.fit(digits_net)
    with torch.no_grad():
        error = (digits_net(pixels[1400:]).argmax(1) != labels[1400:]).float().mean()
    rank, steps = trainer.global_rank, trainer.global_step
    print(f"rank {rank}: {steps} steps, test error {error:.1%}", flush=True)
