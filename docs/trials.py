"""Small runs for the pictures of the documentation: the package itself, on a few hundred digits."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import selective_backprop as sb

EASY_TO_HARD = 36  # examples of a diary: three windows of 12, from which batches of 4 are drawn


class _Noted(Dataset):
    """Notes which examples are loaded, and which epoch it is."""

    def __init__(self, data: TensorDataset, epochs: int) -> None:
        self.data, self.epoch = data, 0
        self.loaded = np.zeros((epochs, len(data)), dtype=bool)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch  # the loader passes this on

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        self.loaded[self.epoch, index] = True
        return self.data[index]


def keep_odds(selector: sb.selectors.AbstractSelector, bins: int = 40) -> tuple[Tensor, Tensor]:
    """Return ranks of losses, and which share of those a selector keeps, counted over windows."""
    generator, batch = torch.Generator().manual_seed(0), 32
    ranks = (torch.arange(4000) + 0.5) / 4000
    losses = 0.3 * (1.2 * torch.special.ndtri(ranks)).exp()  # log-normal
    window = round(batch / selector.terms.rate)
    running = selector.start(sb.scorers.Context(batch_size=batch, window=window))
    history = sb.selectors.History(1024)
    history.file(losses[torch.randperm(4000, generator=generator)[:1024]])
    seen, kept = torch.zeros(2, bins)
    for _ in range(1500):
        drawn = torch.randint(4000, (window,), generator=generator)
        history.file(losses[drawn])
        rows = running.select(losses[drawn], history, generator).rows
        seen += torch.bincount(drawn * bins // 4000, minlength=bins)
        kept += torch.bincount(drawn[rows] * bins // 4000, minlength=bins)
    return ranks.reshape(bins, -1).mean(dim=1), kept / seen


@cache
def digits(examples: int = 600, start: int = 0, flipped: float = 0.0) -> TensorDataset:
    """Return some of scikit-learn's digits, of which a share has wrong labels on purpose."""
    pixels, labels = load_digits(return_X_y=True)
    part = slice(start, start + examples)
    labels = torch.tensor(labels[part])
    generator = torch.Generator().manual_seed(5)
    wrong = torch.rand(examples, generator=generator) < flipped
    others = torch.randint(1, 10, (examples,), generator=generator)
    labels = torch.where(wrong, (labels + others) % 10, labels)
    return TensorDataset(torch.tensor(pixels[part] / 16, dtype=torch.float32), labels)


def make_model() -> nn.Module:
    """Return a small net for digits."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


def train(
    model: nn.Module,
    data: Dataset,
    strategy: sb.Strategy,
    *,
    epochs: int,
    batch_size: int = 16,
    rate: float = 0.05,
) -> Iterator[tuple[int, Tensor]]:
    """Train a model in place, and yield epoch and indices of every batch that it took."""
    shuffle = torch.Generator().manual_seed(0)
    loss_fn = nn.CrossEntropyLoss(reduction="none")
    loader = sb.SelectiveLoader(
        DataLoader(data, batch_size=batch_size, shuffle=True, generator=shuffle),
        model,
        loss_fn,
        strategy,
        epochs=epochs,
        leftovers="flush",
        with_selection=True,
        generator=torch.Generator().manual_seed(0),
        quiet=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for (inputs, labels), selection in loader:
            optimizer.zero_grad()
            outputs = model(inputs)
            losses = loss_fn(outputs, labels)
            (selection.weights * losses).mean().backward()
            optimizer.step()
            loader.record(selection, losses, (outputs, labels))
            yield epoch, selection.indices


def diary(strategy: sb.Strategy, epochs: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Train on a few examples, ordered from easy to hard, and note what became of each.

    Returns:
        Whether each example was loaded, and whether it was trained on: bool [epoch, example].
    """
    data = _Noted(_easy_to_hard(), epochs)
    trained = np.zeros_like(data.loaded)
    for epoch, rows in train(make_model(), data, strategy, epochs=epochs, batch_size=4, rate=0.1):
        trained[epoch, rows.numpy()] = True
    return data.loaded, trained


@cache
def _easy_to_hard() -> TensorDataset:
    """Return a few digits in the order of the losses that they have while they are learned."""
    data, model, total = digits(EASY_TO_HARD, start=100), make_model(), torch.zeros(EASY_TO_HARD)
    inputs, labels = data.tensors
    for _ in train(model, data, sb.traditional(), epochs=8, batch_size=4, rate=0.1):
        with torch.no_grad():
            total += nn.functional.cross_entropy(model(inputs), labels, reduction="none")
    return TensorDataset(*(tensor[total.argsort()] for tensor in data.tensors))
