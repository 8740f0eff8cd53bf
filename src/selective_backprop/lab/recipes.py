"""How each data set is trained: one recipe, the same for every arm of a comparison."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import nn

import selective_backprop as sb
from selective_backprop.lab.augment import Augmentation


class Rates(StrEnum):
    """How the learning rate moves over a run.

    `CYCLE` rises linearly over the first fifth and falls linearly to 0; `COSINE` falls from the
    start along half a cosine; `STEPS` falls to a fifth at 40, 60 and 80 per cent, as the
    Selective-Backprop paper's schedules do in their proportions.
    """

    CYCLE = "cycle"
    COSINE = "cosine"
    STEPS = "steps"


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how; nothing in it depends on the strategy.

    Attributes:
        data: name of the data set.
        model: name or import path of the model.
        epochs: passes over the data where no other length is given.
        batch_size: rows of a training batch.
        learning_rate: its highest value.
        momentum: of SGD with Nesterov's momentum.
        weight_decay: of all parameters.
        rates: how the learning rate moves. What it moves with is the run's to say (see `pacing`);
            by default the fraction of the run that is done, so that an arm that takes fewer
            updates per epoch goes through the same schedule.
        augmentation: what is done to training images.
    """

    data: str
    model: str
    epochs: int
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    rates: Rates = Rates.CYCLE
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise sb.ConfigurationError(f"{name}={getattr(self, name)}: it must be positive")

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return SGD as the recipe has it, at its highest learning rate."""
        return torch.optim.SGD(
            parameters,
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.momentum > 0,
        )

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate where a fraction `progress` of the schedule, 0 to 1, is done."""
        return self.learning_rate * rate_factor(self.rates, min(1.0, max(0.0, progress)))


def rate_factor(rates: Rates, progress: float) -> float:
    """Return the share of the highest learning rate that is in force at `progress`, 0 to 1."""
    if rates is Rates.CYCLE:
        rise = 0.2
        return progress / rise if progress < rise else (1.0 - progress) / (1.0 - rise)
    if rates is Rates.COSINE:
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 0.2 ** sum(progress >= step for step in (0.4, 0.6, 0.8))


RECIPES: Mapping[str, Recipe] = {
    "digits": Recipe(
        "digits", "small_cnn", epochs=20, batch_size=64, augmentation=Augmentation(shift=1)
    ),
    "mnist": Recipe("mnist", "small_cnn", epochs=5, augmentation=Augmentation(shift=2)),
    "fashion-mnist": Recipe(
        "fashion-mnist", "small_cnn", epochs=10, augmentation=Augmentation(shift=2, flip=True)
    ),
    "cifar10": Recipe(
        "cifar10",
        "resnet9_narrow",
        epochs=10,
        augmentation=Augmentation(shift=4, flip=True, cutout=8),
    ),
    "cifar100": Recipe(
        "cifar100",
        "resnet9_narrow",
        epochs=10,
        augmentation=Augmentation(shift=4, flip=True, cutout=8),
    ),
}


def find_recipe(data: str) -> Recipe:
    """Return the recipe of a data set.

    Raises:
        ConfigurationError: if there is none.
    """
    if data not in RECIPES:
        raise sb.ConfigurationError(
            f"there is no data set {data!r}; there are {', '.join(RECIPES)}"
        )
    return RECIPES[data]
