"""Small runs for the pictures of the documentation: the package itself, on a few hundred digits."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import selective_backprop as sb

EASY_TO_HARD = 36  # examples of a diary: three windows of 12, from which batches of 4 are drawn


@dataclass(frozen=True)
class Kept:
    """How often a selector kept candidates, by the rank of their losses."""

    ranks: np.ndarray  # middle of each bin, the share of losses that are lower
    losses: np.ndarray  # the same bins
    share: np.ndarray  # of the candidates in a bin, kept
    weight: np.ndarray  # mean, of those that were kept; NaN where none was


@dataclass
class Diary:
    """What became of each example in each epoch."""

    loaded: np.ndarray  # all three are bool [epoch, example]
    scored: np.ndarray
    trained: np.ndarray


@dataclass(frozen=True)
class Watched(sb.scorers.AbstractScorer):
    """Score as another scorer does, and note which examples were scored."""

    inner: sb.scorers.AbstractScorer
    note: Callable[[Tensor], None] = field(compare=False)

    @property
    def needs(self) -> sb.scorers.Needs:
        return self.inner.needs

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        return _RunningWatched(self.inner.start(context), self.note)


class _RunningWatched(sb.scorers.RunningScorer):
    def __init__(self, inner: sb.scorers.RunningScorer, note: Callable[[Tensor], None]) -> None:
        self.inner, self.note = inner, note

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        assert indices is not None
        self.note(indices)
        return self.inner.score(batch, indices)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


@dataclass(frozen=True)
class WatchedGate(sb.selectors.AbstractGate):
    """Judge as another gate does, and note its running tau and whether it is open."""

    inner: sb.selectors.AbstractGate
    seen: list[tuple[float, bool]] = field(compare=False)

    def start(self, context: sb.scorers.Context) -> sb.selectors.RunningGate:
        return _RunningWatchedGate(self.inner.start(context), self.seen)


class _RunningWatchedGate(sb.selectors.RunningGate):
    def __init__(self, inner: sb.selectors.RunningGate, seen: list[tuple[float, bool]]) -> None:
        self.inner, self.seen = inner, seen

    @property
    def is_open(self) -> bool:
        return self.inner.is_open

    def probes(self) -> bool:
        return self.inner.probes()

    def observe(self, scores: Tensor) -> None:
        self.inner.observe(scores)
        self.seen.append((self.inner.state_dict()["tau"], self.inner.is_open))

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


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


def keep_odds(
    selector: sb.selectors.AbstractSelector,
    *,
    median: float = 0.3,
    batch: int = 32,
    windows: int = 1500,
    bins: int = 40,
) -> Kept:
    """Run a selector over windows of log-normal losses, and count what it keeps."""
    generator = torch.Generator().manual_seed(0)
    ranks = (torch.arange(4000) + 0.5) / 4000
    losses = median * (1.2 * torch.special.ndtri(ranks)).exp()
    window = max(batch, round(batch / selector.terms.rate))
    running = selector.start(sb.scorers.Context(batch_size=batch, window=window))
    if isinstance(running, sb.selectors.Paced):
        running.begin(0.0)
    history = sb.selectors.History(max(1024, window))
    history.file(losses[torch.randperm(4000, generator=generator)[:1024]])
    seen, kept, weight = torch.zeros(bins), torch.zeros(bins), torch.zeros(bins)
    for _ in range(windows):
        drawn = torch.randint(4000, (window,), generator=generator)
        history.file(losses[drawn])
        rows, weights = running.select(losses[drawn], history, generator)
        seen += torch.bincount(drawn * bins // 4000, minlength=bins)
        taken = drawn[rows] * bins // 4000
        kept += torch.bincount(taken, minlength=bins)
        weight += torch.bincount(taken, weights, minlength=bins)
    middles = losses.reshape(bins, -1).median(dim=1).values
    return Kept(
        ranks.reshape(bins, -1).mean(dim=1).numpy(),
        middles.numpy(),
        (kept / seen).numpy(),
        (weight / kept).numpy(),
    )


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


def make_model(width: int = 48, seed: int = 0) -> nn.Module:
    """Return a small net for digits."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def losses_of(model: nn.Module, data: TensorDataset) -> Tensor:
    """Return every example's loss."""
    inputs, labels = data.tensors
    with torch.no_grad():
        return nn.functional.cross_entropy(model(inputs), labels, reduction="none")


def train(
    model: nn.Module,
    data: Dataset,
    strategy: sb.Strategy,
    *,
    epochs: int,
    batch_size: int = 16,
    rate: float = 0.05,
    seed: int = 0,
) -> Iterator[tuple[int, Tensor]]:
    """Train a model in place, and yield epoch and indices of every batch that it took."""
    shuffle = torch.Generator().manual_seed(seed)
    candidates = DataLoader(data, batch_size=batch_size, shuffle=True, generator=shuffle)
    loss_fn = nn.CrossEntropyLoss(reduction="none")
    loader = sb.SelectiveLoader(
        candidates,
        model,
        loss_fn,
        strategy,
        epochs=epochs,
        leftovers="flush",
        with_selection=True,
        generator=torch.Generator().manual_seed(seed),
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


def finish(run: Iterable[Any]) -> None:
    """Let a training run to its end."""
    for _ in run:
        pass


def diary(strategy: Callable[[sb.scorers.AbstractScorer], sb.Strategy], epochs: int = 8) -> Diary:
    """Train on a few examples, ordered from easy to hard, and note what became of each.

    Args:
        strategy: returns the strategy for a scorer, which watches what is scored.
        epochs: how long.
    """
    data = _Noted(_easy_to_hard(), epochs)
    scored, trained = np.zeros((2, *data.loaded.shape), dtype=bool)

    def note(indices: Tensor) -> None:
        scored[data.epoch, indices.numpy()] = True

    chosen = strategy(Watched(sb.scorers.Forward(), note))
    for epoch, indices in train(make_model(), data, chosen, epochs=epochs, batch_size=4, rate=0.1):
        trained[epoch, indices.numpy()] = True
    # The very first batch is scored even in a warm-up, to see at once whether its losses are fit.
    scored[: chosen.schedule.warmup_epochs] = False
    return Diary(data.loaded, scored, trained)


@cache
def _easy_to_hard() -> TensorDataset:
    """Return a few digits in the order of the losses that they have while they are learned."""
    data, model, total = digits(EASY_TO_HARD, start=100), make_model(), 0.0
    for _ in train(model, data, sb.traditional(), epochs=8, batch_size=4, rate=0.1):
        total = total + losses_of(model, data)
    return TensorDataset(*(tensor[total.argsort()] for tensor in data.tensors))
