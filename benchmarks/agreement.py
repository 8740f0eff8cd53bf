"""Measure how far each cheap scorer agrees with exact scores while a model is being trained.

    PYTHONPATH=benchmarks python benchmarks/agreement.py --root data --out agreement.json

Selective-Backprop at a rate of a third by a lab recipe, after a first epoch of everything. Every
candidate batch is scored twice, and only the cheap scores select. Nothing here is timed.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from recording import write_record
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.loader import InMemoryDataset, make_loader
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.recipe import Recipe, find_recipe

RATE = 1 / 3


@dataclass(frozen=True)
class Beside(sb.scorers.AbstractScorer):
    """Score as a cheap scorer does, and note for each batch how far an exact one agrees."""

    scorer: sb.scorers.AbstractScorer
    found: list[sb.scorers.Agreement] = field(default_factory=list, repr=False)

    @property
    def needs(self) -> sb.scorers.Needs:
        """What the cheap scorer needs."""
        return self.scorer.needs

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        """Return both at work."""
        return _Both(self.scorer.start(context), sb.scorers.Forward().start(context), self.found)


class _Both(sb.scorers.Delegating):
    def __init__(
        self,
        cheap: sb.scorers.RunningScorer,
        exact: sb.scorers.RunningScorer,
        found: list[sb.scorers.Agreement],
    ) -> None:
        super().__init__(cheap)
        self._exact, self._found = exact, found

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        scores = self.inner.score(batch, indices)
        exact = self._exact.score(batch, indices)
        self._found.append(sb.scorers.Agreement.between(scores, exact, rate=RATE))
        return scores


def scorers() -> dict[str, sb.scorers.AbstractScorer]:
    """Return the scorers to look at, by name."""
    inner = sb.scorers.Forward()
    return {
        "Int8": sb.experimental.Int8(inner, check=None),
        "LowResolution": sb.experimental.LowResolution(inner, check=None),
    }


def train(
    scorer: sb.scorers.AbstractScorer, data: datasets.LabData, recipe: Recipe
) -> list[list[float]]:
    """Return the overlap in each candidate batch, epoch by epoch, from the second on."""
    torch.manual_seed(0)
    model = make_model(recipe.model, data, seed=0)
    optimizer = recipe.make_optimizer(model.parameters())
    loader = make_loader(
        data, batch_size=recipe.batch_size, seed=0, augmentation=recipe.augmentation
    )
    beside = Beside(scorer)
    strategy = sb.selective_backprop(RATE, scorer=beside)
    door = sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), strategy, epochs=recipe.epochs, quiet=True
    )
    overlaps: list[list[float]] = []
    for epoch in range(recipe.epochs):
        if isinstance(loader.dataset, InMemoryDataset):
            loader.dataset.set_epoch(epoch)
        beside.found.clear()
        for images, labels in door:
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate_at(door.progress or 0.0)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        overlaps.append([each.overlap for each in beside.found])
    return overlaps[1:]


def main() -> int:
    """Train with each scorer, print a table, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10", help="name of a data set of the lab")
    parser.add_argument("--root", type=Path, help="folder of its files")
    parser.add_argument("--examples", type=int, default=12_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    recipe = replace(find_recipe(options.data), epochs=options.epochs)
    data = datasets.load(options.data, root=options.root, limit=options.examples)
    table = Table("scorer", "mean overlap by epoch", "5 % of batches below", "lowest", box=None)
    entries = []
    for name, scorer in scorers().items():
        epochs = train(scorer, data, recipe)
        every = sorted(overlap for each in epochs for overlap in each)
        entry = {
            "scorer": name,
            "mean": statistics.fmean(every),
            "epochs": [statistics.fmean(each) for each in epochs],
            "twentieth": every[len(every) // 20],
            "lowest": every[0],
            "batches": len(every),
        }
        entries.append(entry)
        means = "  ".join(f"{mean:.3f}" for mean in entry["epochs"])
        table.add_row(name, means, f"{entry['twentieth']:.3f}", f"{entry['lowest']:.3f}")
        console.print(f"{name}: {means}")
    console.print(table)
    if options.out:
        write_record(
            options.out,
            data=data.name,
            examples=len(data.train_labels),
            net=recipe.model,
            batch_size=recipe.batch_size,
            epochs=recipe.epochs,
            rate=RATE,
            seed=0,
            scorers=entries,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
