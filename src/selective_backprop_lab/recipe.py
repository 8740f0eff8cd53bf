"""Recipes: how each data set is trained, the same for all strategies of a comparison."""

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.datasets import LabData, base_name, data_name, is_own, read
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.shapes import Float32, Num


class Precision(StrEnum):
    """The precision that training computes in; `BF16` is autocast to bfloat16."""

    FP32 = "fp32"
    BF16 = "bf16"

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Return the context manager for a forward pass."""
        if self is Precision.FP32:
            return nullcontext()
        return torch.autocast(device.type, dtype=torch.bfloat16)


class Optimizer(StrEnum):
    """The optimiser."""

    SGD = "sgd"
    ADAMW = "adamw"  # its first beta is the recipe's momentum, the second 0.95


class Rates(StrEnum):
    """How the learning rate changes over a run."""

    CYCLE = "cycle"  # rises linearly over the first fifth and falls linearly to 0
    COSINE = "cosine"  # falls from the start along half a cosine
    STEPS = "steps"  # falls by a factor at several moments, which the recipe names
    CONSTANT = "constant"


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how, independently of the strategy."""

    data: str
    model: str  # name or import path
    epochs: int  # passes over the data, if no other length is given
    batch_size: int = 128  # rows of a training batch
    learning_rate: float = 0.1  # its highest value
    momentum: float = 0.9
    weight_decay: float = 5e-4  # of all parameters
    rates: Rates = Rates.CYCLE  # how the learning rate changes with the run's progress
    augmentation: Augmentation = field(default_factory=Augmentation)
    # Where `Rates.STEPS` falls, as fractions of the schedule: epoch 60 of 200 is `60 / 200`.
    steps: tuple[float, ...] = (0.4, 0.6, 0.8)
    decay: float = 0.2  # factor of the learning rate at each step, between 0 and 1
    nesterov: bool = True
    precision: Precision = Precision.FP32  # of all passes, including scoring and evaluation
    optimizer: Optimizer = Optimizer.SGD

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise sb.ConfigurationError(f"{name}={getattr(self, name)}: it must be positive")
        bounds = pairwise((0.0, *self.steps, 1.0))
        if not self.steps or not all(earlier < later for earlier, later in bounds):
            raise sb.ConfigurationError(
                f"steps={self.steps}: write rising fractions of the schedule between 0 and 1, such "
                "as (0.3, 0.6, 0.8), or rates=Rates.CONSTANT for none"
            )
        if not 0.0 < self.decay < 1.0:
            raise sb.ConfigurationError(
                f"decay={self.decay}: the factor of the learning rate at each step must be between "
                "0 and 1, such as 0.2 for a fifth"
            )

    def config(self) -> dict[str, Any]:
        """Return the recipe as in a record, without options that have no effect."""
        found = vars(self) | {"augmentation": dict(vars(self.augmentation))}
        if self.rates is not Rates.STEPS:
            del found["steps"], found["decay"]
        if not self.momentum or self.optimizer is not Optimizer.SGD:
            del found["nesterov"]
        if self.optimizer is Optimizer.SGD:
            del found["optimizer"]  # records from before there were others do not name it
        return found

    def make_model(self, data: LabData, *, seed: int) -> nn.Module:
        """Return the recipe's net for a data set, in its precision, on the CPU."""
        model = make_model(self.model, data, seed=seed)
        return model if self.precision is Precision.FP32 else _Autocast(model, self.precision)

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the recipe's optimiser, at its highest learning rate; on a GPU, it is fused."""
        parameters = list(parameters)
        given: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        # One kernel, instead of several for each group of tensors; None is torch's own choice.
        given["fused"] = True if parameters[0].is_cuda else None
        if self.optimizer is Optimizer.ADAMW:
            return torch.optim.AdamW(parameters, betas=(self.momentum, 0.95), **given)
        nesterov = self.nesterov and self.momentum > 0
        return torch.optim.SGD(parameters, momentum=self.momentum, nesterov=nesterov, **given)

    def learning_rate_at(self, progress: float) -> float:
        """Return the learning rate after a fraction `progress` of the schedule, in [0, 1]."""
        progress = min(1.0, max(0.0, progress))
        match self.rates:
            case Rates.CYCLE:
                rise = 0.2
                share = progress / rise if progress < rise else (1.0 - progress) / (1.0 - rise)
            case Rates.COSINE:
                share = 0.5 * (1.0 + math.cos(math.pi * progress))
            case Rates.STEPS:
                share = self.decay ** sum(progress >= step for step in self.steps)
            case Rates.CONSTANT:
                share = 1.0
        return self.learning_rate * share


_TEXT = Recipe(
    "source-bytes",
    "byte_lm",
    epochs=1,
    batch_size=16,
    learning_rate=2e-3,
    weight_decay=0.1,
    optimizer=Optimizer.ADAMW,
)
_CIFAR, _DIGITS = Augmentation(shift=4, flip=True, cutout=8), Augmentation(shift=1)

_ALL = (
    Recipe("digits", "small_cnn", epochs=20, batch_size=64, augmentation=_DIGITS),
    Recipe("digits-three", "small_cnn", epochs=20, batch_size=64, augmentation=_DIGITS),
    Recipe("mnist", "small_cnn", epochs=5, augmentation=Augmentation(shift=2)),
    Recipe("mnist-parity", "small_cnn", epochs=5, augmentation=Augmentation(shift=2)),
    Recipe("fashion-mnist", "small_cnn", epochs=10, augmentation=Augmentation(shift=2, flip=True)),
    Recipe("cifar10", "resnet9_narrow", epochs=10, augmentation=_CIFAR),
    Recipe("cifar10-animals", "resnet9_narrow", epochs=10, augmentation=_CIFAR),
    Recipe("cifar100-coarse", "resnet9_narrow", epochs=10, augmentation=_CIFAR),
    Recipe("cifar100", "resnet9_narrow", epochs=10, augmentation=_CIFAR),
    Recipe("svhn", "resnet9_narrow", epochs=10, augmentation=Augmentation(shift=2)),
    Recipe("svhn-extra", "resnet9_narrow", epochs=5, augmentation=Augmentation(shift=2)),
    # These are numbers, not images, so there is nothing to shift or mirror.
    Recipe("mnist1d", "perceptron", epochs=50, batch_size=64),
    Recipe("adult", "perceptron", epochs=5, batch_size=64),
    Recipe("kdd99", "perceptron", epochs=2),
    Recipe("shuttle", "perceptron", epochs=5),
    Recipe("breast-cancer", "perceptron", epochs=20, batch_size=32),
    Recipe("table", "perceptron", epochs=10, batch_size=64),
    Recipe("clicks", "perceptron", epochs=5, batch_size=64),
    Recipe("source-code", "perceptron", epochs=10, batch_size=64),
    _TEXT,
    replace(_TEXT, data="help-bytes", epochs=2),
)
RECIPES: Mapping[str, Recipe] = {recipe.data: recipe for recipe in _ALL}


def find_recipe(data: str) -> Recipe:
    """Return the recipe of a data set, also for some of its classes.

    The user's own data are read: vectors get the recipe of `table`, images that of `svhn`, which
    does not mirror them, and images below 16 pixels a side that of `digits`.
    """
    name = data_name(data)
    if not is_own(name):
        return replace(RECIPES[base_name(name)], data=name)
    shape = read(name, None).train_inputs.shape
    like = "table" if len(shape) == 2 else "svhn" if shape[2] >= 16 else "digits"
    return replace(RECIPES[like], data=name)


class _Autocast(nn.Module):
    """A model under autocast in training, scoring and evaluation; its logits are float32."""

    def __init__(self, inner: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.inner = inner
        self._precision = precision

    def forward(
        self, inputs: Num[Tensor, "candidate ..."]
    ) -> Float32[Tensor, "candidate logit *token"]:
        with self._precision.autocast(inputs.device):
            return self.inner(inputs).float()
