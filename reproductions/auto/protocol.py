"""The runs of the study behind `auto`, fixed before anything ran.

The settings of `auto` are chosen in the first stage alone. The second has other data and seeds, and
is run once. Every strategy has its own learning rate at each length.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from reproductions.auto.ablations import ABLATIONS
from reproductions.rules import COMPARED
from selective_backprop_lab.analysis.queries import BASELINE, counted, last_tenth
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import AS_PUBLISHED, Composition, NoiseKind
from selective_backprop_lab.recipe import Recipe, find_recipe
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.run_config import RunConfig

_ROWS = tomllib.loads(Path(__file__).with_name("workloads.toml").read_text(encoding="utf-8"))
OURS, NULL, NOBODY = "auto", "reseeded", "oracle"
GIVES_UP = "auto-trim+smoothing-0.3"  # by the share of wrong labels that is read
THINNED = f"{BASELINE}+thinned"  # by the share that is best on the tuning seeds
THINNINGS = tuple(f"{THINNED}-{share:g}" for share in (0.05, 0.1, 0.3))
UNEQUAL = (*THINNINGS, f"{BASELINE}+class-weights")  # where classes differ
PARTS = tuple(f"reproductions.auto.ablations:{name}" for name in ABLATIONS)
RULES = tuple(f"reproductions.rules.{name}:{name}" for name in COMPARED)
INSTEAD, ADDED = (_ROWS["stages"]["instead"][key] for key in ("arms", "added"))
FAMILIAR = _ROWS["familiar"]
_LISTED = ("confirm", "language", "instead", "nets", "easy", "rules")
_LISTS = (_ROWS["stages"][name]["arms"] for name in _LISTED)
ORDER = tuple(dict.fromkeys((OURS, *chain.from_iterable(_LISTS), *RULES)))
"""All strategies of the study, as tables have them."""
FACTORS = (0.5, 1.0, 2.0)  # of a workload's middle learning rate: the grid to begin with
WIDEST = 8.0  # times the middle rate: the highest rate of the grid; the lowest is its inverse
TUNING_SEEDS = range(900, 906)  # that nothing else has
UNITS, MEASURES = _ROWS["units"], _ROWS["measures"]
Cell = tuple[str, Budget]  # a strategy and a length


@dataclass(frozen=True)
class Tuned:
    """The mean final error at each learning rate of a strategy at one length."""

    errors: Mapping[float, float]  # by rate, rising; infinite if a seed diverged

    @property
    def rate(self) -> float:
        """The rate of the lowest mean error, the lowest of equals."""
        return min(self.errors, key=self.errors.__getitem__)

    @property
    def error(self) -> float:
        return self.errors[self.rate]

    @property
    def edge(self) -> int:
        """1 if the best rate is the highest that was tried, -1 if it is the lowest, else 0."""
        rates = [*self.errors]
        return (self.rate == rates[-1]) - (self.rate == rates[0]) if len(rates) > 1 else 0


def tuned(evaluations: pd.DataFrame, column: str = "error") -> dict[Cell, Tuned]:
    """Return the learning rates of each strategy and length, judged by the mean over seeds.

    Only finished runs count. A run that diverges leaves no finished record, so the error of a rate
    is infinite if it lacks a seed of another rate.
    """
    cell = ["arm", "unit", "length"]
    runs = last_tenth(counted(evaluations)).groupby([*cell, "learning_rate", "seed"])
    ends: Any = runs[column].mean().fillna(math.inf).unstack("seed")
    found = dict[Cell, Tuned]()
    for (arm, unit, length), own in ends.groupby(level=cell):
        errors = own.droplevel(cell).dropna(axis=1, how="all").mean(axis=1, skipna=False)
        if errors.min() < math.inf:
            found[arm, Budget(unit, length)] = Tuned(errors.fillna(math.inf).to_dict())
    return found


@dataclass(frozen=True)
class Workload:
    """Data, a net and lengths on which all strategies are compared."""

    title: str  # in tables
    recipe: Recipe  # its learning rate is the middle of the grid, and decays over each run's length
    lengths: tuple[float, ...]  # of traditional training and `NULL`, in passes, rising
    compared: tuple[float, ...]  # of the other strategies; traditional training has them all
    composition: Composition = AS_PUBLISHED
    limit: int | None = None  # training examples that it is composed of
    pretrained: str | None = None  # data that the net was trained on before, if any
    tuning_seeds: int = 2  # by which learning rates are found
    anew: bool = False  # whether each seed has training and test examples of its own
    held_out: bool = False  # whether rates are found on held-out training examples
    unequal: bool = False  # whether one class is much larger than others
    repeats: bool = False  # whether many rows are published more than once
    adds: bool = False  # whether `ADDED` is tried on it
    unit: str = "%"  # of the error: a key of `UNITS`

    @property
    def column(self) -> str:
        return UNITS[self.unit][0]

    @property
    def scale(self) -> float:
        return UNITS[self.unit][1]

    @property
    def name(self) -> str:
        return re.sub(r"[\W_]+", " ", self.title.lower()).strip().replace(" ", "-")

    @property
    def kind(self) -> str:
        """The kind of data: the first that holds."""
        made = self.composition
        if made.noise:
            return "wrong labels"
        if self.pretrained:
            return "fine-tuning"
        if made.frequent:
            return "one frequent class"
        if made.copies or made.skew:
            return "skewed or repeated"
        return _ROWS["kinds"].get(self.recipe.data, "images as published")

    def fits(self, arm: str) -> bool:
        """Return whether a strategy can do anything here."""
        if arm in (NOBODY, GIVES_UP):
            return bool(self.composition.noise or (arm == NOBODY and self.composition.copies))
        if arm in UNEQUAL or arm == "unique":
            return self.unequal if arm in UNEQUAL else self.repeats
        if arm in ADDED and not self.adds:
            return False
        return "progressive" not in arm or self.recipe.model == "small_cnn"

    def cells(self, arms: Sequence[str]) -> list[Cell]:
        return [
            (arm, Budget("cost", length))
            for arm in arms
            if self.fits(arm)
            for length in (self.lengths if arm in (BASELINE, NULL) else self.compared)
        ]

    @cache  # noqa: B019 - workloads live as long as the program
    def plan(
        self, cell: Cell, rate: float, seed: int, device: str, *, tunes: bool = False
    ) -> RunConfig:
        """Return one run, which is judged or, if it `tunes`, finds a learning rate."""
        return RunConfig(
            recipe=replace(self.recipe, learning_rate=rate),
            arm=cell[0],
            settings=StrategyOptions(),
            seed=seed,
            length=cell[1],
            evaluations=1,
            limit=self.limit,
            device=device,
            composition=self.composition,
            anew=self.anew,
            held_out=self.held_out and tunes,
            pretrained=self.pretrained,
        )

    def tuning_plans(
        self, arms: Sequence[str], found: Mapping[Cell, Tuned], device: str
    ) -> list[RunConfig]:
        """Return the runs that find the learning rates, in a grid with steps of a factor of two.

        At each length, all strategies are tried at the same rates. The grid has one rate more at an
        edge at which the best rate of a strategy is, of those found so far.
        """
        cells = self.cells(arms)
        grids: dict[Budget, set[float]] = {}
        for cell in cells:
            grid = grids.setdefault(cell[1], {by * self.recipe.learning_rate for by in FACTORS})
            if known := found.get(cell):
                grid.update(known.errors)
                beyond = known.rate * 2.0**known.edge
                if known.edge and 1 / WIDEST <= beyond / self.recipe.learning_rate <= WIDEST:
                    grid.add(beyond)
        tries = [(cell, rate) for cell in cells for rate in sorted(grids[cell[1]])]
        seeds = TUNING_SEEDS[: self.tuning_seeds]
        return [self.plan(*each, seed, device, tunes=True) for seed in seeds for each in tries]

    def plans(
        self, arms: Sequence[str], rates: Mapping[Cell, Tuned], seeds: Sequence[int], device: str
    ) -> list[RunConfig]:
        """Return the runs of all cells with a known learning rate, by seed."""
        cells = [cell for cell in self.cells(arms) if cell in rates]
        return [self.plan(cell, rates[cell].rate, seed, device) for seed in seeds for cell in cells]


@dataclass(frozen=True)
class Stage:
    """A part of the study."""

    title: str
    workloads: tuple[Workload, ...]
    first_seed: int  # the others follow
    arms: tuple[str, ...]  # those that are compared

    def seeds(self, count: int) -> range:
        return range(self.first_seed, self.first_seed + count)


def _made(data: str, net: str = "", **row: Any) -> Workload:
    recipe = find_recipe(data)
    if net:
        size = min(64, recipe.batch_size)
        recipe = replace(recipe, batch_size=size, learning_rate=0.1, **NETS[net])
    if net == "convolutional":  # small nets do not overfit
        recipe = replace(recipe, augmentation=replace(find_recipe(data).augmentation, cutout=0))
    row |= {name: tuple(map(float, row[name])) for name in ("lengths", "compared")}
    if "noise_kind" in row:
        row["noise_kind"] = NoiseKind(row["noise_kind"])

    def of(kind: Any) -> dict[str, Any]:
        return {each.name: row.pop(each.name) for each in fields(kind) if each.name in row}

    recipe, composition = replace(recipe, **of(Recipe)), Composition(**of(Composition))
    return Workload(recipe=recipe, composition=composition, **row)


NETS: Mapping[str, dict[str, Any]] = {
    "perceptron": {"model": "perceptron", "augmentation": Augmentation()},
    "convolutional": {"model": "small_cnn"},  # with BatchNorm; its passes take twice as long
}
"""The changes of a recipe for a net, beside batches of at most 64 and a learning rate of 0.1."""


def _stage(name: str, row: Mapping[str, Any]) -> Stage:
    arms = (*row["arms"], *row.get("added", ()), *{"parts": PARTS, "rules": RULES}.get(name, ()))
    workloads = tuple(_made(**workload) for workload in _ROWS[name])
    return Stage(row["title"], workloads, row["first_seed"], arms)


STAGES: Mapping[str, Stage] = {name: _stage(name, row) for name, row in _ROWS["stages"].items()}
