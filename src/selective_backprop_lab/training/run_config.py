"""The configuration of a run, its description in the record, and its probes.

Probes look into a run while it trains, without changing it, and record what they see. A run with
probes and a run without train the same net and share a record.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop_lab.budget import Budget, ScheduleBasis, basis_words
from selective_backprop_lab.data.composition import AS_PUBLISHED, Composition
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.names import fingerprint
from selective_backprop_lab.preparation import Preparation
from selective_backprop_lab.recipe import Recipe, find_recipe
from selective_backprop_lab.records.lines import record_name
from selective_backprop_lab.records.provenance import provenance
from selective_backprop_lab.records.schema import Header, utc_now
from selective_backprop_lab.strategies import LabStrategy, StrategyOptions, find_strategy

_OTHER_SEEDS = 1_000_000
VERSION = 1  # of the defaults, because a run with other defaults is another run

Memory = dict[str, Any]
"""What a probe remembers of one run, for `torch.save`; it is empty at first."""


@dataclass(frozen=True, eq=False)
class ProbeContext:
    """What a probe may look at, but must not change."""

    model: nn.Module  # the model in training; in eval mode when a probe looks
    data: LabData
    device: torch.device


class Probe(ABC):
    """What to look for in a run; a frozen dataclass, which records name by its `repr`."""

    def select(self, scene: ProbeContext, indices: Tensor, memory: Memory) -> None:  # noqa: B027
        """Note a training batch by its rows' indices, on the CPU; the run's time includes this."""

    @abstractmethod
    def look(
        self, scene: ProbeContext, progress: float, memory: Memory
    ) -> Mapping[str, Any] | None:
        """Return what the probe sees after this fraction of the run, for a record, or None."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides how a run goes, and that its record must therefore hold."""

    recipe: Recipe
    arm: str  # name of the strategy
    settings: StrategyOptions
    seed: int  # of all random choices; see `own_seed` and `drawn`
    length: Budget
    evaluations: int = 20  # how often the model is tested on the test set, evenly over the run
    limit: int | None = None  # number of training examples, a fixed stratified part; None for all
    device: str = "cpu"
    composition: Composition = AS_PUBLISHED  # how the training data are changed
    anew: bool = False  # whether the run's seed redistributes the data and draws the composition
    held_out: bool = False  # whether to test on examples that are held out of the training data
    pretrained: str | None = None  # data that the net is first trained on; None for no pretraining
    lr_follows: ScheduleBasis = ScheduleBasis.RUN  # selection always follows the run
    probes: tuple[Probe, ...] = ()  # they do not affect training, and are not in `description`

    def __post_init__(self) -> None:
        length = self.length
        if not 0 < length.value < math.inf:
            raise sb.ConfigurationError(
                f"{length}: the length of a run must be positive and finite"
            )
        if length.unit == "epochs" and length.value != int(length.value):
            raise sb.ConfigurationError(f"{length}: runs have whole epochs")
        if self.pretrained is not None:
            find_recipe(self.pretrained)
        strategy = self.strategy
        _check(self.arm, strategy, self.options)
        if strategy.trains_models and length.unit == "seconds":
            raise sb.ConfigurationError(
                f"{self.arm} trains other models for a share of the run's epochs, but a budget in "
                "seconds has no number of epochs; give epochs, or a budget in passes"
            )

    @property
    def strategy(self) -> LabStrategy:
        """The strategy that the arm's name stands for."""
        return find_strategy(self.arm)

    @property
    def options(self) -> StrategyOptions:
        """The settings, with the number of epochs if the run's length is in epochs."""
        epochs = int(self.length.value) if self.length.unit == "epochs" else None
        return replace(self.settings, epochs=epochs)

    @property
    def drawn(self) -> tuple[Composition, int | None]:
        """The composition of this run's data, and the seed that redistributes them, or None."""
        if not self.anew:
            return self.composition, None
        if self.composition == AS_PUBLISHED:
            return AS_PUBLISHED, self.seed
        return replace(self.composition, seed=self.seed), self.seed

    @property
    def own_seed(self) -> int:
        """The seed of the weights, the order of the data, the augmentation and the selection."""
        # Far from the seeds of other runs, with which the arm is compared on the same data.
        return self.seed + _OTHER_SEEDS if self.strategy.reseeded else self.seed

    def description(self) -> dict[str, Any]:
        """Return the run as in its record, including defaults."""
        recipe, length = self.recipe.config(), self.length
        options = {name: getattr(self.options, name) for name in self.strategy.options}
        budget = {"budget": length.value, "budget_unit": length.unit}
        lasting = {"epochs": length.value} if length.unit == "epochs" else budget
        return {
            "data": recipe.pop("data"),
            "model": recipe.pop("model"),
            "limit": self.limit,
            **self.composition.config(),
            **{name: True for name in ("anew", "held_out") if getattr(self, name)},
            **({"pretrained": self.pretrained} if self.pretrained else {}),
            "arm": self.arm,
            "seed": self.seed,
            "strategy": {"name": self.arm, **options},
            **lasting,
            "recipe": {key: value for key, value in recipe.items() if key != "epochs"},
            "schedules_follow": basis_words(self.lr_follows, length, self.recipe.epochs),
            "evaluations": self.evaluations,
        }

    def identity(self) -> dict[str, Any]:
        """Return the choices that are not defaults, which options added later do not change."""
        chosen = _chosen(_altered(self, seed=0), self.strategy)
        files = self._files | _files(pretrained=self.pretrained)
        return {**chosen, "seed": self.seed, **files}

    @property
    def pretraining(self) -> "RunConfig | None":
        """The traditional run whose weights this one begins with, except the last layer's."""
        if self.pretrained is None:
            return None
        recipe = replace(
            find_recipe(self.pretrained), model=self.recipe.model, precision=self.recipe.precision
        )
        return RunConfig(
            recipe,
            "traditional",
            StrategyOptions(),
            seed=0,
            length=Budget("epochs", float(recipe.epochs)),
            evaluations=1,
            device=self.device,
        )

    @cached_property
    def record_name(self) -> str:
        """The file name of the run's record."""
        return record_name(self.identity())

    def header(self, command: str) -> Header:
        """Return the first line of this run's record, if the run started now with `command`."""
        found: dict[str, Any] = {**provenance(), "started": utc_now(), **self._files}
        found |= {"device": self.device, "command": command}
        return Header(identity=self.identity(), config=self.description(), **found)

    @property
    def _files(self) -> dict[str, str]:
        own = self.arm.partition("+")[0]
        return _files(model=self.recipe.model, data=self.recipe.data, strategy=own)


def _altered(config: RunConfig, **fields: Any) -> RunConfig:
    altered = copy(config)
    vars(altered).update(fields)
    return altered


@lru_cache(maxsize=1024)  # reading a study asks for the names of thousands of runs
def _chosen(config: RunConfig, strategy: LabStrategy) -> Mapping[str, Any]:
    recipe, length = config.recipe, config.length
    usual = _altered(
        config,
        recipe=Recipe(recipe.data, recipe.model, recipe.epochs),
        settings=StrategyOptions(),
        limit=None,
        composition=AS_PUBLISHED,
        anew=False,
        held_out=False,
        pretrained=None,
        lr_follows=ScheduleBasis.RUN,
    )
    chosen = _differing(config.description(), usual.description())
    revision = {"revision": strategy.revision} if strategy.revision > 1 else {}
    return {
        "version": VERSION,
        "data": recipe.data,
        "model": recipe.model,
        "strategy": {"name": config.arm, **chosen.pop("strategy", {}), **revision},
        "length": {length.unit: length.value},
        "evaluations": config.evaluations,
        **chosen,
    }


@cache
def _check(arm: str, strategy: LabStrategy, settings: StrategyOptions) -> None:
    if strategy.prepare is None:
        made = strategy.make(settings, Preparation())
        if strategy.loss is not None and made.schedule.gate is not None:
            raise sb.ConfigurationError(
                f"{arm}: {made.name} decides when to select by the loss of training, so "
                "that cannot be another than the cross-entropy; smoothing can be added"
            )


def _files(**names: str | None) -> dict[str, str]:
    found = {f"{name}_file": value and fingerprint(value) for name, value in names.items()}
    return {name: file for name, file in found.items() if file}


def _differing(described: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in described.items():
        if isinstance(value, Mapping):
            if inner := _differing(value, usual.get(name, {})):
                found[name] = inner
        elif name not in usual or usual[name] != value:
            found[name] = value
    return found
