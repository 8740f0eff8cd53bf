"""Train a small network on handwritten digits with Lightning, selecting examples."""

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
images = torch.tensor(digits.images, dtype=torch.float32).div(16).unsqueeze(1)
labels = torch.tensor(digits.target)


class Digits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.loss_fn = nn.CrossEntropyLoss()
        self.net = nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten()),
            nn.Linear(1024, 10),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        inputs, targets = batch
        losses = nn.functional.cross_entropy(self(inputs), targets, reduction="none")
        return selected_loss(self, losses, targets)

    def train_dataloader(self) -> DataLoader:
        examples = TensorDataset(images[:1400], labels[:1400])
        data = DataLoader(examples, batch_size=32, shuffle=True)
        return LightningLoader(data, self, self.loss_fn, sb.auto())

    def test_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:
        inputs, targets = batch
        self.log("error", (self(inputs).argmax(1) != targets).float().mean())

    def test_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(images[1400:], labels[1400:]), batch_size=397)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(
        max_epochs=8,
        accelerator="cpu",
        callbacks=[SelectionCallback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    net = Digits()
    trainer.fit(net)
    [found] = trainer.test(net, verbose=False)
    print(f"{trainer.global_step} steps, test error {found['error']:.1%}")
