"""Compare what the loader keeps of a stream of losses with the paper's rule in plain Python.

    PYTHONPATH=benchmarks python benchmarks/choice.py --root data --out choice.json

A lab net is trained with Selective-Backprop, and the loss of every candidate is noted in order. The
loader, given these numbers as data, chooses among them with many seeds. Nothing here is timed.
"""

import argparse
import math
import random
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from recording import write_record
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.loader import InMemoryDataset, make_loader
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.recipe import Recipe, find_recipe

BATCH = 128
RECENT = 1024  # the paper's R
BETAS = (1.0, 2.0, 3.0)


@dataclass(frozen=True)
class Noting(sb.scorers.AbstractScorer):
    """Score by the loss, and note every score in the order of the candidates."""

    noted: list[float] = field(default_factory=list, repr=False)

    @property
    def needs(self) -> sb.scorers.Needs:
        """What a forward pass needs."""
        return sb.scorers.Forward().needs

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        """Return the forward pass at work, with the list."""
        return _Noting(sb.scorers.Forward().start(context), self.noted)


class _Noting(sb.scorers.Delegating):
    def __init__(self, inner: sb.scorers.RunningScorer, noted: list[float]) -> None:
        super().__init__(inner)
        self._noted = noted

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        scores = self.inner.score(batch, indices)
        self._noted.extend(scores.tolist())
        return scores


def noted_losses(data: datasets.LabData, recipe: Recipe) -> list[float]:
    """Train with Selective-Backprop; return the loss of every candidate, in order."""
    torch.manual_seed(0)
    model = make_model(recipe.model, data, seed=0)
    optimizer = recipe.make_optimizer(model.parameters())
    loader = make_loader(data, batch_size=BATCH, seed=0, augmentation=recipe.augmentation)
    noting = Noting()
    strategy = sb.selective_backprop(beta=2, draw="bernoulli", warmup_epochs=0, scorer=noting)
    door = sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), strategy, epochs=recipe.epochs, quiet=True
    )
    for epoch in range(recipe.epochs):
        if isinstance(loader.dataset, InMemoryDataset):
            loader.dataset.set_epoch(epoch)
        for images, labels in door:
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate_at(door.progress or 0.0)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    return noting.noted


def percentile(recent: deque[float], loss: float) -> float:
    """Return the share of the recent losses that is strictly lower."""
    return sum(other < loss for other in recent) / len(recent)


def papers_percentiles(losses: Sequence[float]) -> list[float]:
    """Return each loss's percentile by algorithms 1 and 2 of Jiang et al. 2019, arXiv:1910.00762.

    One loss at a time is added to the history and ranked. The paper does not say how a tie counts;
    here it does not count as lower, as in the authors' code.
    """
    recent: deque[float] = deque(maxlen=RECENT)
    percentiles = []
    for loss in losses:
        recent.append(loss)
        percentiles.append(percentile(recent, loss))
    return percentiles


def authors_percentiles(losses: Sequence[float]) -> list[float]:
    """Return each loss's percentile in the order of the authors' code.

    A whole batch is added to the history before the first of its losses is ranked:
    `BatchedRelativeProbabilityCalculator` of github.com/angelajiang/SelectiveBackprop.
    """
    recent: deque[float] = deque(maxlen=RECENT)
    percentiles = []
    for start in range(0, len(losses), BATCH):
        batch = losses[start : start + BATCH]
        recent.extend(batch)
        percentiles += [percentile(recent, loss) for loss in batch]
    return percentiles


def tossed(odds: Sequence[float], seeds: int) -> list[int]:
    """Return how often each loss is kept by a coin of its odds."""
    kept = [0] * len(odds)
    for seed in range(seeds):
        coin = random.Random(seed)
        for row, probability in enumerate(odds):
            kept[row] += coin.random() < probability
    return kept


class Stream(Dataset[tuple[Tensor, Tensor]]):
    """Losses as a data set: example `i` is the i-th loss, twice."""

    def __init__(self, losses: Sequence[float]) -> None:
        self.losses = torch.tensor(losses)

    def __len__(self) -> int:
        return len(self.losses)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.losses[index], self.losses[index]

    def __getitems__(self, indices: list[int]) -> Tensor:
        return self.losses[indices].repeat(2, 1)


def as_batch(losses: Tensor) -> list[Tensor]:
    """Return inputs and targets of what a whole batch was read as."""
    return list(losses)


def hand_through(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the numbers as they are, as losses of their examples."""
    return outputs


def chosen(losses: Sequence[float], beta: float, seeds: int) -> list[int]:
    """Return how often the loader keeps each loss."""
    kept = torch.zeros(len(losses), dtype=torch.int64)
    strategy = sb.selective_backprop(beta=beta, draw="bernoulli", warmup_epochs=0, history=RECENT)
    for seed in range(seeds):
        door = sb.SelectiveLoader(
            DataLoader(Stream(losses), batch_size=BATCH, collate_fn=as_batch),
            nn.Identity(),
            hand_through,
            strategy,
            with_selection=True,
            leftovers="flush",
            generator=torch.Generator().manual_seed(seed),
            quiet=True,
        )
        for _, selection in door:
            kept[selection.indices] += 1
    return kept.tolist()


def by_decile(
    percentiles: Sequence[float],
    odds: dict[str, list[float]],
    kept: dict[str, list[int]],
    seeds: int,
) -> list[dict[str, Any]]:
    """Return mean odds and shares kept of each tenth of the losses, by the paper's percentile."""
    rows: list[list[int]] = [[] for _ in range(10)]
    for row, share in enumerate(percentiles):
        rows[int(10 * share)].append(row)
    entries = []
    for members in rows:
        variance = sum(odds["authors"][row] * (1 - odds["authors"][row]) for row in members)
        entries.append(
            {
                "losses": len(members),
                "odds": {
                    name: sum(each[row] for row in members) / len(members)
                    for name, each in odds.items()
                },
                "kept": {
                    name: sum(each[row] for row in members) / len(members) / seeds
                    for name, each in kept.items()
                },
                # Of a share kept, from the coins alone.
                "error": math.sqrt(variance / seeds) / len(members),
            }
        )
    return entries


def compare(losses: Sequence[float], beta: float, seeds: int, ranks: dict[str, list[float]]) -> Any:
    """Return the table of one selectivity."""
    odds = {name: [share**beta for share in each] for name, each in ranks.items()}
    kept = {name: tossed(each, seeds) for name, each in odds.items()}
    deciles = by_decile(ranks["paper"], odds, kept | {"loader": chosen(losses, beta, seeds)}, seeds)
    return {
        "beta": beta,
        "deciles": deciles,
        "largest": {
            name: max(abs(each["kept"]["loader"] - each["odds"][name]) for each in deciles)
            for name in odds
        },
        "largest_in_errors": max(
            abs(each["kept"]["loader"] - each["odds"]["authors"]) / each["error"]
            for each in deciles
        ),
    }


def main() -> int:
    """Note the losses, choose among them in three ways, print tables, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion-mnist", help="name of a data set of the lab")
    parser.add_argument("--root", type=Path, help="folder of its files")
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=50, help="of the coins")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    recipe = replace(find_recipe(options.data), epochs=options.epochs, batch_size=BATCH)
    data = datasets.load(options.data, root=options.root, limit=options.examples)
    losses = noted_losses(data, recipe)
    ranks = {"paper": papers_percentiles(losses), "authors": authors_percentiles(losses)}
    tables = []
    for beta in BETAS:
        found = compare(losses, beta, options.seeds, ranks)
        tables.append(found)
        table = Table("tenth", "paper's odds", "authors' odds", "loader keeps", "error", box=None)
        for number, each in enumerate(found["deciles"]):
            numbers = (*each["odds"].values(), each["kept"]["loader"], each["error"])
            table.add_row(str(number + 1), *(f"{value:.4f}" for value in numbers))
        console.print(f"beta {beta:g}: largest difference {found['largest']}")
        console.print(table)
    if options.out:
        write_record(
            options.out,
            data=data.name,
            examples=len(data.train_labels),
            net=recipe.model,
            batch_size=BATCH,
            history=RECENT,
            epochs=recipe.epochs,
            losses=len(losses),
            seed=0,
            coin_seeds=options.seeds,
            betas=tables,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
