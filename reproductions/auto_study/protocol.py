"""What the study behind `auto` trains, fixed before anything ran.

What `auto` does is chosen in the first stage alone. The second has other data, and seeds that no
other record has, and is run once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.budget import Budget
from selective_backprop.lab.data.composition import Composition
from selective_backprop.lab.recipe import RECIPES, Recipe
from selective_backprop.lab.strategies import StrategyOptions
from selective_backprop.lab.training.run_config import RunConfig

OURS = "auto"
RANDOM = "random-backprop"
HARDEST = "selective-backprop"
ARMS = (
    BASELINE,
    RANDOM,
    HARDEST,
    "stale-sb",
    "recorded-sb",
    "kath18",
    "infobatch",
    "easy-skip",
    "kakurenbo",
    "rho-loss",
    OURS,
)
MORE = 1.25  # times the shortest budget, for traditional training alone
FLIPPED = 0.2
SETTINGS = StrategyOptions(rate=0.5)


@dataclass(frozen=True)
class Benchmark:
    """Data, a net and lengths on which all strategies are compared."""

    title: str  # what figures and tables call it
    recipe: Recipe  # each run's learning rate decays over its own length
    limit: int | None  # training examples
    budgets: tuple[float, ...]  # of whole runs, in passes of traditional training, rising
    noise: float = 0.0  # share of the training labels that are flipped

    @property
    def more(self) -> float:
        """What traditional training is also run at, to be held against the lowest budget."""
        return MORE * self.budgets[0]

    def plan(self, arm: str, budget: float, seed: int, device: str) -> RunConfig:
        """Return one run."""
        return RunConfig(
            recipe=self.recipe,
            arm=arm,
            settings=SETTINGS,
            seed=seed,
            length=Budget("cost", budget),
            evaluations=3,
            limit=self.limit,
            device=device,
            composition=Composition(noise=self.noise),
        )


@dataclass(frozen=True)
class Stage:
    """A part of the study."""

    title: str  # of its page
    benchmarks: tuple[Benchmark, ...]
    first_seed: int  # the others follow

    def seeds(self, count: int) -> range:
        """Return so many seeds."""
        return range(self.first_seed, self.first_seed + count)

    def plans_on(self, benchmark: Benchmark, seeds: int, device: str) -> list[RunConfig]:
        """Return all runs on a benchmark, those of a seed beside each other."""
        runs = [(arm, budget) for budget in benchmark.budgets for arm in ARMS]
        runs.append((BASELINE, benchmark.more))
        return [
            benchmark.plan(arm, budget, seed, device)
            for seed in self.seeds(seeds)
            for arm, budget in runs
        ]


def _benchmark(
    title: str, data: str, limit: int | None, noise: float = 0.0, **changes: Any
) -> Benchmark:
    recipe = RECIPES[data]
    # Small data sets have few batches of 128, and small nets do not overfit.
    augmentation = replace(recipe.augmentation, cutout=0)
    recipe = replace(recipe, model="small_cnn", batch_size=64, augmentation=augmentation)
    return Benchmark(title, replace(recipe, **changes), limit, (3.0, 9.0, 27.0), noise)


STAGES: Mapping[str, Stage] = {
    "develop": Stage(
        "Development",
        (
            _benchmark("Digits", "digits", None),
            _benchmark("MNIST", "mnist", 4_000),
            _benchmark("MNIST, 20 % flipped", "mnist", 4_000, FLIPPED),
            # A net that cannot learn all of it, at a learning rate that is right for it.
            _benchmark("MNIST, linear", "mnist", 4_000, model="linear", learning_rate=0.01),
        ),
        first_seed=0,
    ),
    "confirm": Stage(
        "Confirmation",
        (
            _benchmark("Fashion-MNIST", "fashion-mnist", 5_000),
            _benchmark("CIFAR-10", "cifar10", 4_000),
            _benchmark("CIFAR-10, 20 % flipped", "cifar10", 4_000, FLIPPED),
            _benchmark("CIFAR-100", "cifar100", 4_000),
        ),
        first_seed=100,
    ),
}
