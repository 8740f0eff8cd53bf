"""Runs so small that they take a moment: a few real digits, and nets that tell what they did."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from fixture_doors import bits, same_tensors
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop.lab import metering, models
from selective_backprop.lab.arms import Settings
from selective_backprop.lab.augment import Augmentation
from selective_backprop.lab.comparison import Length
from selective_backprop.lab.datasets import ImageData, load
from selective_backprop.lab.plans import Plan
from selective_backprop.lab.recipes import Recipe
from selective_backprop.lab.records import Point
from selective_backprop.lab.runs import TrainingRun

EXAMPLES, BATCH, TESTED = 256, 64, 50
"""Four full batches an epoch; at a rate of 1/2, two windows."""


@cache
def few_digits(examples: int = EXAMPLES) -> ImageData:
    digits = load("digits", limit=examples)
    return replace(
        digits, test_images=digits.test_images[:TESTED], test_labels=digits.test_labels[:TESTED]
    )


def blank_data(channels: int, side: int, classes: int = 10) -> ImageData:
    """Return two black images, for what only asks how large images are, and of how many classes."""
    images = torch.zeros(2, channels, side, side, dtype=torch.uint8)
    return ImageData(
        name="blank",
        train_images=images,
        train_labels=torch.zeros(2, dtype=torch.int64),
        test_images=images,
        test_labels=torch.zeros(2, dtype=torch.int64),
        class_names=tuple(f"class {number}" for number in range(classes)),
        mean=(0.5,) * channels,
        std=(1.0,) * channels,
    )


def fixture_plan(
    arm: str = "selective-backprop",
    *,
    seed: int = 0,
    epochs: float = 3,
    cost: float | None = None,
    seconds: float | None = None,
    model: str = "fixture_lab:small_net",
    recipe: dict[str, Any] | None = None,
    evaluations: int = 3,
    **settings: Any,
) -> Plan:
    length = Length("epochs", epochs)
    if cost is not None:
        length = Length("cost", cost)
    if seconds is not None:
        length = Length("seconds", seconds)
    fields = {"batch_size": BATCH, "augmentation": Augmentation(shift=1), **(recipe or {})}
    return Plan(
        recipe=Recipe("digits", model, epochs=3, **fields),
        arm=arm,
        settings=Settings(**({"rate": 1 / 2, "warmup": 1 / 3} | settings)),
        seed=seed,
        length=length,
        evaluations=evaluations,
        limit=EXAMPLES,
    )


def finish(run: TrainingRun) -> TrainingRun:
    while not run.finished:
        run.advance()
    return run


def carry_out(plan: Plan, data: ImageData | None = None) -> TrainingRun:
    return finish(TrainingRun(plan, few_digits() if data is None else data))


def untimed(points: list[Point]) -> list[dict[str, Any]]:
    """What two runs that are the same must agree on: all but seconds."""
    times = {"seconds", "cpu_seconds", "phases"}
    return [
        {name: value for name, value in vars(point).items() if name not in times}
        for point in points
    ]


def same_runs(one: TrainingRun, other: TrainingRun) -> bool:
    """Whether two runs agree in weights, curve, counters and what the loader remembers."""
    states = [bits(run.loader.state_dict()["parts"]) for run in (one, other)]
    return (
        same_tensors(one.model.state_dict(), other.model.state_dict())
        and repr(untimed(one.points)) == repr(untimed(other.points))
        and one.observations == other.observations
        and one.meters() | {"peak_memory_bytes": 0} == other.meters() | {"peak_memory_bytes": 0}
        and states[0] == states[1]
    )


class Watched(nn.Module):
    """A linear net that calls `watch` with each batch, before it is passed on."""

    def __init__(self, pixels: int, classes: int, watch: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.layer = nn.Linear(pixels, classes)
        self.watch = watch

    def forward(self, images: Tensor) -> Tensor:
        self.watch(images)
        return self.layer(images.flatten(1))


def small_net(channels: int, classes: int, side: int) -> nn.Module:
    """A net whose training draws from the global random stream, and moves buffers."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * side * side, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(32, classes),
    )


def linear_net(channels: int, classes: int, side: int) -> nn.Module:
    """A net that passes an example alike in either mode, whatever else is in its batch."""
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, classes))


def name_model(monkeypatch: Any, name: str, factory: Callable[[int, int, int], nn.Module]) -> str:
    """Give a model a name that plans can use, for one test."""
    monkeypatch.setitem(models.MODELS, name, factory)
    return name


def name_watched(monkeypatch: Any, watch: Callable[[Tensor], None]) -> str:
    return name_model(
        monkeypatch, "watched", lambda channels, classes, side: Watched(64, classes, watch)
    )


class Clock:
    """Seconds that pass only when a test says so, as the meters see them."""

    def __init__(self, monkeypatch: Any) -> None:
        self.now = 0.0
        monkeypatch.setattr(metering.sb, "Stopwatch", partial(sb.Stopwatch, clock=self))

    def __call__(self) -> float:
        return self.now

    def tick(self, *_: Any) -> None:
        self.now += 1.0


def count_rows(rows: dict[str, int]) -> Callable[[Tensor], None]:
    """Return a watch that counts the rows that pass with and without gradients."""

    def watch(images: Tensor) -> None:
        rows["trained" if torch.is_grad_enabled() else "looked at"] += len(images)

    return watch
