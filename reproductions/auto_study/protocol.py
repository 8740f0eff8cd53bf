"""What the study behind `auto` trains, fixed before anything ran.

What `auto` does is chosen in the first stage alone. The second has other data, and seeds that no
other record has, and is run once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.budget import Length
from selective_backprop.lab.recipe import RECIPES, Recipe
from selective_backprop.lab.strategies import Settings
from selective_backprop.lab.training.run_config import Plan

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
SETTINGS = Settings(rate=0.5)


@dataclass(frozen=True)
class Ground:
    """Data, a net and lengths on which all strategies are compared.

    Attributes:
        title: what figures and tables call it.
        recipe: what is trained, and how; each run's learning rate decays over its own length.
        limit: training examples.
        budgets: costs of whole runs, in passes of traditional training, the lowest first.
        noise: share of the training labels that are flipped.
    """

    title: str
    recipe: Recipe
    limit: int | None
    budgets: tuple[float, ...]
    noise: float = 0.0

    @property
    def more(self) -> float:
        """What traditional training is also run at, to be held against the lowest budget."""
        return MORE * self.budgets[0]

    def plan(self, arm: str, budget: float, seed: int, device: str) -> Plan:
        """Return one run."""
        return Plan(
            recipe=self.recipe,
            arm=arm,
            settings=SETTINGS,
            seed=seed,
            length=Length("cost", budget),
            evaluations=3,
            limit=self.limit,
            device=device,
            noise=self.noise,
        )

    def plans(self, seed: int, device: str) -> list[Plan]:
        """Return all runs of a seed, arms beside each other."""
        both = [(arm, budget) for budget in self.budgets for arm in ARMS]
        return [
            self.plan(arm, budget, seed, device) for arm, budget in (*both, (BASELINE, self.more))
        ]


@dataclass(frozen=True)
class Stage:
    """A part of the study.

    Attributes:
        title: of its page.
        grounds: where strategies are compared.
        first_seed: of its runs; the others follow.
    """

    title: str
    grounds: tuple[Ground, ...]
    first_seed: int

    def seeds(self, count: int) -> range:
        """Return so many seeds."""
        return range(self.first_seed, self.first_seed + count)

    def plans_on(self, ground: Ground, seeds: int, device: str) -> list[Plan]:
        """Return all runs on a ground, those of a seed beside each other."""
        return [plan for seed in self.seeds(seeds) for plan in ground.plans(seed, device)]


class StageName(StrEnum):
    """Which part of the study."""

    DEVELOP = "develop"
    CONFIRM = "confirm"


def _ground(
    title: str,
    data: str,
    limit: int | None,
    budgets: tuple[float, ...],
    noise: float = 0.0,
    **changes: Any,
) -> Ground:
    recipe = RECIPES[data]
    # Small data sets have few batches of 128, and small nets do not overfit.
    recipe = replace(
        recipe,
        model="small_cnn",
        batch_size=64,
        augmentation=replace(recipe.augmentation, cutout=0),
    )
    recipe = replace(recipe, **changes)
    return Ground(title, recipe, limit, budgets, noise)


_SHORT_TO_LONG = (3.0, 9.0, 27.0)
STAGES: Mapping[StageName, Stage] = {
    StageName.DEVELOP: Stage(
        "Development",
        (
            _ground("Digits", "digits", None, _SHORT_TO_LONG),
            _ground("MNIST", "mnist", 4_000, _SHORT_TO_LONG),
            _ground("MNIST, 20 % flipped", "mnist", 4_000, _SHORT_TO_LONG, FLIPPED),
            # A net that cannot learn all of it, at a learning rate that is right for it.
            _ground(
                "MNIST, linear", "mnist", 4_000, _SHORT_TO_LONG, model="linear", learning_rate=0.01
            ),
        ),
        first_seed=0,
    ),
    StageName.CONFIRM: Stage(
        "Confirmation",
        (
            _ground("Fashion-MNIST", "fashion-mnist", 5_000, _SHORT_TO_LONG),
            _ground("CIFAR-10", "cifar10", 4_000, _SHORT_TO_LONG),
            _ground("CIFAR-10, 20 % flipped", "cifar10", 4_000, _SHORT_TO_LONG, FLIPPED),
            _ground("CIFAR-100", "cifar100", 4_000, _SHORT_TO_LONG),
        ),
        first_seed=100,
    ),
}
