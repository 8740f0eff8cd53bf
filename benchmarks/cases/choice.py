"""Whether what is chosen is what should be, by the paper's rule or by exact scores."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from benchmarks.case import Once, Row, case, value
from benchmarks.training import train
from selective_backprop_lab.data import datasets
from selective_backprop_lab.recipe import find_recipe

BATCH, RECENT = 128, 1024  # the latter is the paper's R


@dataclass(frozen=True)
class Watched(sb.scorers.AbstractScorer):
    """Score as the first of some scorers does, and show what all of them say of a batch."""

    scorers: Sequence[sb.scorers.AbstractScorer]
    show: Callable[..., object]

    @property
    def needs(self) -> sb.scorers.Needs:
        """What the first needs."""
        return self.scorers[0].needs

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        """Return all of them at work."""
        return _Watched([each.start(context) for each in self.scorers], self.show)


class _Watched(sb.scorers.Delegating):
    def __init__(
        self, running: Sequence[sb.scorers.RunningScorer], show: Callable[..., object]
    ) -> None:
        super().__init__(running[0])
        self._others, self._show = running[1:], show

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        scores = self.inner.score(batch, indices)
        self._show(scores, *(each.score(batch, indices) for each in self._others))
        return scores


@case("src/selective_backprop/experimental", "src/selective_backprop/scorers")
def agreement(
    *, data: str = "cifar10", root: Path = Path("data"), examples: int = 10_000, epochs: int = 4
) -> Iterator[Once]:
    """How far a cheap scorer agrees with exact scores while a net is trained by the cheap one."""
    exact = sb.scorers.Forward()
    cheap = sb.experimental.Int8(exact, check=None)

    def find() -> list[Row]:
        recipe = replace(find_recipe(data), epochs=epochs)
        images = datasets.load(data, root=root, limit=examples)
        overlaps: list[float] = []

        def compare(scores: Tensor, truth: Tensor) -> None:
            found = sb.scorers.Agreement.between(scores, truth, rate=1 / 3)
            overlaps.append(found.overlap)

        scorer = Watched([cheap, exact], compare)
        train(images, recipe, sb.selective_backprop(1 / 3, scorer=scorer))
        per_epoch = len(overlaps) // (epochs - 1)  # the first epoch keeps everything
        by_epoch = [
            statistics.fmean(overlaps[start : start + per_epoch])
            for start in range(0, len(overlaps), per_epoch)
        ]
        every = sorted(overlaps)
        return [
            value("overlap of the highest third", statistics.fmean(every), "share")
            | {"data": images.name, "examples": examples, "net": recipe.model}
            | {"mean": statistics.fmean(every), "epochs": by_epoch}
            | {"twentieth": every[len(every) // 20], "lowest": every[0]}
        ]

    yield Once({"scorer": type(cheap).__name__}, find)


@case("src/selective_backprop/selectors", "src/selective_backprop/_memory")
def kept(
    *,
    data: str = "fashion-mnist",
    root: Path = Path("data"),
    examples: int = 10_000,
    epochs: int = 3,
    seeds: int = 50,
) -> Iterator[Once]:
    """How often the loader keeps the losses of a stream, beside the odds that the papers give."""
    recipe = replace(find_recipe(data), epochs=epochs, batch_size=BATCH)
    images = datasets.load(data, root=root, limit=examples)
    losses: list[float] = []
    watched = Watched([sb.scorers.Forward()], lambda scores: losses.extend(scores.tolist()))
    train(
        images,
        recipe,
        sb.selective_backprop(beta=2, draw="bernoulli", warmup_epochs=0, scorer=watched),
    )
    ranks = {name: percentiles(losses, entering) for name, entering in ENTERING.items()}
    told = {"data": images.name, "examples": examples, "net": recipe.model, "batch_size": BATCH}
    told |= {"history": RECENT, "candidates": len(losses), "coin_seeds": seeds}
    for beta in (1.0, 2.0, 3.0):
        yield Once({"beta": beta}, lambda beta=beta: by_tenth(losses, beta, seeds, ranks, told))


# How many losses enter the history before the first of them is ranked: algorithms 1 and 2 of Jiang
# et al. 2019, arXiv:1910.00762, and `BatchedRelativeProbabilityCalculator` of
# github.com/angelajiang/SelectiveBackprop.
ENTERING = {"paper": 1, "authors": BATCH}


def percentiles(losses: Sequence[float], entering: int) -> list[float]:
    """Return the share of the recent losses that is strictly lower than each loss, as it comes up.

    The paper does not say how a tie counts; here it does not count as lower, as in the authors'
    code.
    """
    found: list[float] = []
    for start in range(0, len(losses), entering):
        end = min(start + entering, len(losses))
        recent = losses[max(0, end - RECENT) : end]
        found += [sum(other < loss for other in recent) / len(recent) for loss in losses[start:end]]
    return found


def times_kept(losses: Sequence[float], beta: float, seeds: int) -> list[int]:
    """Return how often the loader keeps each loss."""
    kept, numbers = torch.zeros(len(losses), dtype=torch.int64), torch.tensor(losses)
    for seed in range(seeds):
        loader = sb.SelectiveLoader(
            DataLoader(TensorDataset(numbers, numbers), batch_size=BATCH),
            nn.Identity(),
            lambda outputs, targets: outputs,  # the numbers as they are
            sb.selective_backprop(beta=beta, draw="bernoulli", warmup_epochs=0, history=RECENT),
            with_selection=True,
            leftovers="flush",
            generator=torch.Generator().manual_seed(seed),
            quiet=True,
        )
        for _, selection in loader:
            kept[selection.indices] += 1
    return kept.tolist()


def by_tenth(
    losses: Sequence[float], beta: float, seeds: int, ranks: dict[str, list[float]], told: Row
) -> list[Row]:
    """Return mean odds and the share that is kept of each tenth, by the paper's percentile."""
    kept = times_kept(losses, beta, seeds)
    odds = {name: [share**beta for share in each] for name, each in ranks.items()}
    members: list[list[int]] = [[] for _ in range(10)]
    for row, share in enumerate(ranks["paper"]):
        members[int(10 * share)].append(row)
    rows = []
    for tenth, among in enumerate(members):
        variance = sum(odds["authors"][row] * (1 - odds["authors"][row]) for row in among)
        means = {name: sum(each[row] for row in among) / len(among) for name, each in odds.items()}
        share = sum(kept[row] for row in among) / len(among) / seeds
        # The error of a share that is kept, from the coins alone.
        own = {"tenth": tenth + 1, "odds": means, "error": math.sqrt(variance / seeds) / len(among)}
        rows.append(value("kept", share, "share of the losses") | told | own)
    return rows
