"""Whether the loader chooses as the paper's rule says."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from benchmarks.case import Row, case, value
from benchmarks.training import train
from selective_backprop_lab.data import datasets
from selective_backprop_lab.recipe import find_recipe

BATCH, RECENT = 128, 1024  # the latter is the paper's R
# How many losses enter the history before the first of them is ranked: algorithms 1 and 2 of Jiang
# et al. 2019, arXiv:1910.00762, and `BatchedRelativeProbabilityCalculator` of
# github.com/angelajiang/SelectiveBackprop.
ENTERING = {"paper": 1, "authors": BATCH}


@case("src/selective_backprop/selectors", "src/selective_backprop/_memory")
def kept(
    *,
    data: str = "fashion-mnist",
    root: Path = Path("data"),
    examples: int = 10_000,
    epochs: int = 3,
    seeds: int = 50,
) -> Iterator[Row]:
    """How often the loader keeps the losses of a stream, beside the odds that the papers give."""
    recipe = replace(find_recipe(data), epochs=epochs, batch_size=BATCH)
    images = datasets.load(data, root=root, limit=examples)
    losses: list[float] = []

    def see(indices: Tensor, logits: Tensor, epoch: int, trained: bool) -> None:
        if not trained:
            labels = images.train_labels[indices]
            losses.extend(nn.functional.cross_entropy(logits, labels, reduction="none").tolist())

    strategy = sb.selective_backprop(beta=2, draw="bernoulli", warmup_epochs=0)
    train(images, recipe, strategy, see=see)
    ranks = {name: percentiles(losses, entering) for name, entering in ENTERING.items()}
    about = {"data": images.name, "examples": examples, "net": recipe.model, "batch_size": BATCH}
    about |= {"history": RECENT, "candidates": len(losses), "coin_seeds": seeds}
    for beta in (1.0, 2.0, 3.0):
        for row in by_tenth(losses, beta, seeds, ranks):
            yield {"beta": beta} | row | about


def percentiles(losses: Sequence[float], entering: int) -> list[float]:
    """Return the share of the recent losses that is strictly lower than each loss.

    The paper does not say how a tie counts. Here it does not count as lower, as in the authors'
    code.
    """
    found: list[float] = []
    for start in range(0, len(losses), entering):
        end = min(start + entering, len(losses))
        recent = losses[max(0, end - RECENT) : end]
        found += [sum(other < loss for other in recent) / len(recent) for loss in losses[start:end]]
    return found


def times_kept(losses: Sequence[float], beta: float, seeds: int) -> list[int]:
    counts, numbers = torch.zeros(len(losses), dtype=torch.int64), torch.tensor(losses)
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
            counts[selection.indices] += 1
    return counts.tolist()


def by_tenth(
    losses: Sequence[float], beta: float, seeds: int, ranks: dict[str, list[float]]
) -> Iterator[Row]:
    """Yield mean odds and the share that is kept of each tenth, by the paper's percentile."""
    counts = times_kept(losses, beta, seeds)
    odds = {name: [share**beta for share in each] for name, each in ranks.items()}
    for tenth in range(10):
        among = [row for row, share in enumerate(ranks["paper"]) if int(10 * share) == tenth]
        variance = sum(odds["authors"][row] * (1 - odds["authors"][row]) for row in among)
        means = {name: sum(each[row] for row in among) / len(among) for name, each in odds.items()}
        share = sum(counts[row] for row in among) / len(among) / seeds
        # The error of the share that is kept, from the coins alone.
        own = {"tenth": tenth + 1, "odds": means, "error": math.sqrt(variance / seeds) / len(among)}
        yield value("kept", share, "share of the losses") | own
