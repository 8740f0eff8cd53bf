"""A plan: everything that decides how a run goes."""

import math
from dataclasses import dataclass
from typing import Any

import torch

import selective_backprop as sb
from selective_backprop.lab.arms import Settings, find_arm
from selective_backprop.lab.comparison import Length
from selective_backprop.lab.noise import UniformFlip
from selective_backprop.lab.pacing import Follows, check_pace, followed
from selective_backprop.lab.probing import Probe
from selective_backprop.lab.recipes import Recipe


@dataclass(frozen=True)
class Plan:
    """Everything that decides how a run goes, and so everything its record must say.

    Attributes:
        recipe: what is trained, and how.
        arm: name of the strategy.
        settings: what the strategies have in common.
        seed: of the weights, the order of the data, the augmentation and the draws.
        length: epochs, or a budget of cost or seconds, after which the run ends.
        evaluations: how often the test set is looked at, evenly over the run.
        limit: training examples, a fixed and stratified part of the data set; None for all.
        device: where to train.
        noise: share of the training labels that `UniformFlip` replaced by wrong ones.
        lr_follows: what the learning rate follows; selection follows the run in any case.
        probes: what to look for on the way; no part of what is trained, nor of `config`.
    """

    recipe: Recipe
    arm: str
    settings: Settings
    seed: int
    length: Length
    evaluations: int = 20
    limit: int | None = None
    device: str = "cpu"
    noise: float = 0.0
    lr_follows: Follows = Follows.RUN
    probes: tuple[Probe, ...] = ()

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
        arm = find_arm(self.arm)
        arm.words(self.settings)
        UniformFlip(self.noise)
        check_pace(self.lr_follows, self.length)
        if arm.young and self.length.unit == "seconds":
            raise sb.ConfigurationError(
                f"{self.arm} trains other models for a share of the run's epochs, and a budget in "
                "seconds has none; give it epochs or a budget of cost"
            )

    def config(self) -> dict[str, Any]:
        """Return the plan as a record keeps it."""
        recipe = self.recipe.config()
        length = (
            {"epochs": self.length.value}
            if self.length.unit == "epochs"
            else {
                "budget": self.length.value,
                "budget_unit": self.length.unit,
            }
        )
        return {
            "data": recipe.pop("data"),
            "model": recipe.pop("model"),
            "limit": self.limit,
            # Left out where there is none, so that records from before there was noise still count.
            **({"noise": self.noise} if self.noise else {}),
            "arm": self.arm,
            "seed": self.seed,
            # `Forward` once had an option more; records from then still count.
            "strategy": find_arm(self.arm)
            .words(self.settings)
            .replace(", inference_mode", ", autocast=None, inference_mode"),
            **length,
            "recipe": {key: value for key, value in recipe.items() if key != "epochs"},
            "schedules_follow": followed(self.lr_follows, self.length),
            "evaluations": self.evaluations,
            "device": self.device,
            "threads": torch.get_num_threads(),
        }
