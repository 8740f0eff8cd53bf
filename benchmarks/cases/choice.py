"""Whether what is chosen is what should be by the paper's rule."""

import math
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
    """Score by a forward pass, and show the scores of each batch."""

    show: Callable[[Tensor], object]

    @property
    def needs(self) -> sb.scorers.Needs:
        """What a forward pass needs."""
        return sb.scorers.Forward().needs

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        """Return it at work."""
        return _Watched(sb.scorers.Forward().start(context), self.show)


class _Watched(sb.scorers.Delegating):
    def __init__(self, running: sb.scorers.RunningScorer, show: Callable[[Tensor], object]) -> None:
        super().__init__(running)
        self._show = show

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        scores = self.inner.score(batch, indices)
        self._show(scores)
        return scores


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
    watched = Watched(lambda scores: losses.extend(scores.tolist()))
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
