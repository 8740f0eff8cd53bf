"""A plan: everything that decides how a run goes."""

import math
from dataclasses import dataclass
from typing import Any

import selective_backprop as sb
from selective_backprop.lab.budget import Budget
from selective_backprop.lab.data.noise import UniformFlip
from selective_backprop.lab.nets.fingerprint import fingerprint
from selective_backprop.lab.preparation import Preparation
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.records.identity import VERSION, differing, record_name
from selective_backprop.lab.records.schema import Header
from selective_backprop.lab.strategies import StrategyOptions, find_strategy, options_of
from selective_backprop.lab.training.callbacks import Probe
from selective_backprop.lab.training.lr_schedule import Follows, check_pace, followed


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides how a run goes, and so everything its record must say."""

    recipe: Recipe
    arm: str  # name of the strategy
    settings: StrategyOptions
    seed: int  # of the weights, the order of the data, the augmentation and the draws
    length: Budget
    evaluations: int = 20  # how often the test set is looked at, evenly over the run
    limit: int | None = None  # training examples, a fixed and stratified part; None for all
    device: str = "cpu"
    noise: float = 0.0  # share of the training labels that `UniformFlip` replaced by wrong ones
    lr_follows: Follows = Follows.RUN  # selection follows the run in any case
    probes: tuple[Probe, ...] = ()  # no part of what is trained, nor of `config`

    def __post_init__(self) -> None:
        if not 0 < self.length.value < math.inf:
            raise sb.ConfigurationError(
                f"{self.length.words}: the length of a run must be positive and finite"
            )
        if self.length.unit == "epochs" and self.length.value != int(self.length.value):
            raise sb.ConfigurationError(f"{self.length.words}: runs have whole epochs")
        if self.evaluations < 1:
            raise sb.ConfigurationError(
                f"evaluations={self.evaluations}: a run is judged by at least one"
            )
        arm = find_strategy(self.arm)
        if arm.outfit is None:  # refuses now what it would refuse when it trains
            arm.make(self.settings, Preparation())
        UniformFlip(self.noise)
        check_pace(self.lr_follows, self.length)
        if arm.young and self.length.unit == "seconds":
            raise sb.ConfigurationError(
                f"{self.arm} trains other models for a share of the run's epochs, and a budget in "
                "seconds has none; give it epochs or a budget of cost"
            )

    def config(self) -> dict[str, Any]:
        """Return the run as its record describes it, defaults and all."""
        recipe, length = self.recipe.config(), self.length
        options = {name: getattr(self.settings, name) for name in find_strategy(self.arm).options}
        return {
            "data": recipe.pop("data"),
            "model": recipe.pop("model"),
            "limit": self.limit,
            "noise": self.noise or None,
            "arm": self.arm,
            "seed": self.seed,
            "strategy": {"name": self.arm, **options},
            **(
                {"epochs": length.value}
                if length.unit == "epochs"
                else {"budget": length.value, "budget_unit": length.unit}
            ),
            "recipe": {key: value for key, value in recipe.items() if key != "epochs"},
            "schedules_follow": followed(self.lr_follows, length),
            "evaluations": self.evaluations,
        }

    def identity(self) -> dict[str, Any]:
        """Return what the run is known by: what was chosen, without what is as by default."""
        recipe, length = self.recipe, self.length
        usual = Recipe(recipe.data, recipe.model, recipe.epochs)
        revision = find_strategy(self.arm).revision
        return {
            "version": VERSION,
            "data": recipe.data,
            "model": recipe.model,
            "strategy": {
                "name": self.arm,
                **options_of(self.arm, self.settings),
                **({"revision": revision} if revision > 1 else {}),
            },
            "seed": self.seed,
            "length": {length.unit: length.value},
            "evaluations": self.evaluations,
            **differing(
                _described(self.limit, self.noise, recipe, followed(self.lr_follows, length)),
                _described(None, 0.0, usual, followed(Follows.RUN, length)),
            ),
        }

    @property
    def record_name(self) -> str:
        """The name of the file that the run is recorded in."""
        return record_name(self.identity())

    def header(self, command: str) -> Header:
        """Return the first line of the record of this run, were it to start now by `command`."""
        return Header.here(
            self.identity(),
            self.config(),
            device=self.device,
            command=command,
            model_file=fingerprint(self.recipe.model),
        )


def _described(limit: int | None, noise: float, recipe: Recipe, follows: str) -> dict[str, Any]:
    return {"limit": limit, "noise": noise, "recipe": recipe.config(), "schedules_follow": follows}
