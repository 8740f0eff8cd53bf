"""What the study behind `auto` trains, fixed before anything ran.

What `auto` does is chosen in the first stage alone. The second has other data, and seeds that no
other record has, and is run once. In both, every strategy has its own learning rate at each length.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from reproductions.auto.tuning import Cell, Tuned
from selective_backprop_lab.analysis.queries import BASELINE
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import AS_PUBLISHED, Composition
from selective_backprop_lab.data.noise import NoiseKind
from selective_backprop_lab.recipe import Recipe, find_recipe
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.run_config import RunConfig

OURS = "auto"
RIVALS = (BASELINE, "recorded-sb", "infobatch", OURS)  # what a rule is tried against
ARMS = (
    *(BASELINE, "random-backprop", "selective-backprop", "stale-sb", "recorded-sb", "kath18-loss"),
    *("infobatch", "easy-skip", "kakurenbo", OURS),
)
TEXT_ARMS = (
    *(BASELINE, "random-backprop", "selective-backprop", "recorded-sb", "infobatch", "easy-skip"),
    *("tail-sft", OURS),
)
FACTORS = (0.5, 1.0, 2.0)  # of a workload's middle learning rate: the grid to begin with
WIDEST = 8.0  # what a rate of the grid is at most, and one over it at least
INSTEAD_OF = ("smoothing-0.1", "smoothing-0.3", "robust-loss", "trimming", "progressive")
TREATED = tuple(f"{base}+{each}" for each in INSTEAD_OF for base in (BASELINE, OURS))
NULL, NOBODY = "reseeded", "oracle"
GIVES_UP = "auto-trim+smoothing-0.3"  # by the share of wrong labels that is read
INSTEAD = (BASELINE, NULL, NOBODY, "random-backprop", OURS, *TREATED, GIVES_UP)
"""What a person would do instead of selecting, alone and with it, between what chance does and what
nobody can know."""
_BOTH, _EACH = "smoothing-0.3+progressive", ("averaging", "larger-batches")
ADDED = (
    *(f"{base}+{_BOTH}" for base in (BASELINE, OURS)),
    *(f"{base}+{each}" for each in _EACH for base in (BASELINE, OURS, f"{OURS}+smoothing-0.3")),
    *("rho-loss", "rho-loss-shared"),
)
"""What else may add up, tried on few workloads."""
BRIEF = "auto-brief"  # whose selection ends after two and a half visits of each example
NETS = (
    *(BASELINE, NOBODY, OURS, BRIEF),
    *(f"{base}+smoothing-{by}" for by in (0.1, 0.3, 0.5) for base in (BASELINE, OURS)),
    *(GIVES_UP, f"{BRIEF}+smoothing-0.3"),
)
"""How strong smoothing should be beside `auto`, and what else should end selection."""
TUNING_SEEDS = (900, 901, 902)  # that nothing else has
KINDS = {"table": "tables", "clicks": "tables", "breast-cancer": "tables", "adult": "tables"}
FAMILIAR = ("digits", "mnist", "mnist1d", "fashion-mnist", "clicks")  # on which rules were tried
KINDS |= {"source-code": "text", "source-bytes": "text", "help-bytes": "text"}


UNITS = {  # a column of the lab's frame, and what it is multiplied by
    "%": ("error", 1.0),
    "100 × log-loss": ("test_loss", 100.0),
    "100 × bits per byte": ("test_loss", 100.0 / math.log(2.0)),  # recorded in nats
}


@dataclass(frozen=True)
class Workload:
    """Data, a net and lengths on which all strategies are compared."""

    title: str  # what tables call it
    recipe: Recipe  # its learning rate is the middle of the grid, and decays over each run's length
    lengths: tuple[float, ...]  # of traditional training, also `NULL`, in passes, rising: its curve
    compared: tuple[float, ...]  # of the others; traditional training has them all
    composition: Composition = AS_PUBLISHED
    limit: int | None = None  # training examples that it is composed of
    pretrained: str | None = None  # data that the net was trained on before; None for no such
    tuning_seeds: int = 2  # by which learning rates are found
    # Whether each seed has training and test examples of its own.
    anew: bool = False
    # Whether rates are found on a part of the training examples that is held out, and not on the
    # test examples.
    held_out: bool = False
    adds: bool = False  # whether `ADDED` is tried on it
    unit: str = "%"  # of what is to be low: a key of `UNITS`

    @property
    def column(self) -> str:
        """The column of the lab's frame that is to be low."""
        return UNITS[self.unit][0]

    @property
    def scale(self) -> float:
        """What the column is multiplied by where it is shown."""
        return UNITS[self.unit][1]

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())

    @property
    def kind(self) -> str:
        """What it is an example of; the first that holds."""
        made = self.composition
        if made.noise:
            return "wrong labels"
        if self.pretrained:
            return "fine-tuning"
        if made.copies or made.skew:
            return "skewed or repeated"
        return KINDS.get(self.recipe.data, "images as published")

    @property
    def is_new(self) -> bool:
        """Whether no rule was ever tried on its data."""
        return self.recipe.data.partition(":")[0] not in FAMILIAR

    def fits(self, arm: str) -> bool:
        """Return whether a strategy can do anything here."""
        if arm == NOBODY:
            return bool(self.composition.noise or self.composition.copies)
        if arm == GIVES_UP:
            return bool(self.composition.noise)
        if arm in ADDED and not self.adds:
            return False
        return "progressive" not in arm or self.recipe.model == "small_cnn"

    def cells(self, arms: Sequence[str]) -> list[Cell]:
        """Return each of some strategies at each of its lengths."""
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
        """Return the runs that find the learning rates, in a grid whose steps are a factor of two.

        All strategies are tried at the same rates at each length: where the best of one of them,
        of what was found so far, is at the edge, the grid has one rate more there.
        """
        cells = self.cells(arms)
        grids: dict[Budget, set[float]] = {}
        for cell in cells:
            grid = grids.setdefault(cell[1], {by * self.recipe.learning_rate for by in FACTORS})
            if known := found.get(cell):
                grid.update(known.errors)
                if known.edge and not self.is_bounded(known):
                    grid.add(known.rate * 2.0**known.edge)
        return [
            self.plan(cell, rate, seed, device, tunes=True)
            for seed in TUNING_SEEDS[: self.tuning_seeds]
            for cell in cells
            for rate in sorted(grids[cell[1]])
        ]

    def is_bounded(self, found: Tuned) -> bool:
        """Return whether the grid of a cell ends where the best of it is at its edge."""
        beyond = found.rate * 2.0**found.edge / self.recipe.learning_rate
        return not 1 / WIDEST <= beyond <= WIDEST

    def plans(
        self, arms: Sequence[str], rates: Mapping[Cell, Tuned], seeds: Sequence[int], device: str
    ) -> list[RunConfig]:
        """Return the runs of all whose learning rate is known, those of a seed together."""
        return [
            self.plan(cell, rates[cell].rate, seed, device)
            for seed in seeds
            for cell in self.cells(arms)
            if cell in rates
        ]


@dataclass(frozen=True)
class Stage:
    """A part of the study."""

    title: str
    workloads: tuple[Workload, ...]
    first_seed: int  # the others follow
    arms: tuple[str, ...] = ARMS  # those that are compared

    def seeds(self, count: int) -> range:
        """Return so many seeds."""
        return range(self.first_seed, self.first_seed + count)


Lengths = tuple[tuple[float, ...], tuple[float, ...]]
"""Of traditional training, and of the others."""
_PASSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def _lengths(by: float, *compared: float) -> Lengths:
    return tuple(by * length for length in _PASSES), compared


_USUAL, _SHORT, _LATE = _lengths(1, 4.0, 16.0), _lengths(0.5, 2.0, 8.0), _lengths(4, 16.0, 64.0)
_EARLY = _lengths(1, 2.0, 8.0)  # where data are skewed most is learned early
_PLACES = 8000
_FEWER: dict[str, Any] = {"places": 4000}
_SKEWED: dict[str, Any] = {"skew": 1.5, "copies": 1.0}
_NEAR: dict[str, Any] = {"copies": 1.0, "near_copies": 2}
_NEIGHBOUR: dict[str, Any] = {"noise_kind": NoiseKind.NEIGHBOUR}


def _workload(title: str, recipe: Recipe, at: Lengths, made: Mapping[str, Any]) -> Workload:
    """Return a workload: `made` has what its data are composed of, and fields of `Workload`."""
    fields = {name: made[name] for name in made if name in Workload.__dataclass_fields__}
    composed: dict[str, Any] = {name: made[name] for name in made if name not in fields}
    if composed:
        composed.setdefault("places", _PLACES)
        fields["composition"] = Composition(**composed)
    return Workload(title, recipe, *at, **fields)


def _perceptron(
    title: str, data: str, rate: float = 0.1, at: Lengths = _USUAL, **made: Any
) -> Workload:
    """Return a workload of 8,000 training examples, of which nothing is augmented."""
    recipe = replace(
        find_recipe(data),
        model="perceptron",
        batch_size=min(64, find_recipe(data).batch_size),
        learning_rate=rate,
        augmentation=Augmentation(),
    )
    return _workload(title, recipe, at, made)


def _convolutional(title: str, data: str, **made: Any) -> Workload:
    """Return a workload of a small net with BatchNorm, with the data set's shifts and mirroring.

    Its passes take twice as long as a perceptron's, and there are fewer of them.
    """
    recipe = find_recipe(data)
    recipe = replace(
        recipe,
        model="small_cnn",
        batch_size=64,
        learning_rate=0.1,
        augmentation=replace(recipe.augmentation, cutout=0),  # small nets do not overfit
    )
    return _workload(title, recipe, _SHORT, made)


def _tuned(title: str, data: str) -> Workload:
    """Return a perceptron that was trained on five classes, and goes on with the others."""
    return _perceptron(title, f"{data}:5-9", at=_SHORT, pretrained=f"{data}:0-4", limit=_PLACES)


def _language(title: str, data: str, lengths: tuple[float, ...], **made: Any) -> Workload:
    fields = {"limit": 1536, "tuning_seeds": 1, "unit": "100 × bits per byte"}
    return _workload(title, find_recipe(data), (lengths, (lengths[2],)), fields | made)


_DEVELOPMENT = (
    _perceptron("Digits", "digits", 0.2, _EARLY),
    _perceptron("MNIST", "mnist", limit=_PLACES),
    _convolutional("MNIST, convolutional", "mnist", limit=4000),
    _perceptron("MNIST, skewed", "mnist", at=_EARLY, **_SKEWED),
    _perceptron("MNIST, skewed, 10 % wrong", "mnist", noise=0.1, **_SKEWED),
    _convolutional("MNIST, skewed, convolutional", "mnist", **_FEWER, **_SKEWED),
    _perceptron("MNIST, copies", "mnist", at=_EARLY, copies=1.0),
    _perceptron("MNIST, near-copies", "mnist", **_NEAR),
    _perceptron("MNIST, imbalanced", "mnist", at=_EARLY, skew=1.5),
    _perceptron("MNIST, 20 % wrong", "mnist", noise=0.2),
    _perceptron("MNIST, 10 % taken for neighbours", "mnist", noise=0.1, **_NEIGHBOUR),
    _tuned("MNIST, 5 to 9 after 0 to 4", "mnist"),
    # All of it, with its shifts, until no training example in a hundred is wrong.
    Workload(
        "MNIST, saturated",
        replace(find_recipe("mnist"), model="perceptron"),
        _PASSES,
        (8.0, 16.0),
        tuning_seeds=1,
    ),
    _perceptron("MNIST-1D", "mnist1d", at=_LATE),
    _perceptron(
        "MNIST-1D, skewed, 5 % wrong",
        "mnist1d",
        at=_lengths(2, 8.0, 32.0),
        noise=0.05,
        **_FEWER,
        **_SKEWED,
    ),
)
_FASHION = "fashion-mnist"
_CONFIRMATION = (
    _perceptron("Fashion-MNIST", _FASHION, limit=_PLACES),
    _perceptron("Fashion-MNIST, skewed", _FASHION, at=_EARLY, **_SKEWED),
    _perceptron("Fashion-MNIST, skewed, 10 % wrong", _FASHION, noise=0.1, **_SKEWED),
    _convolutional("Fashion-MNIST, skewed, convolutional", _FASHION, **_FEWER, **_SKEWED),
    _perceptron("Fashion-MNIST, near-copies", _FASHION, **_NEAR),
    _perceptron("Fashion-MNIST, 20 % wrong", _FASHION, noise=0.2),
    _convolutional("CIFAR-10", "cifar10", limit=4000),
    _perceptron("CIFAR-10, copies", "cifar10", 0.02, copies=1.0, **_FEWER),
    _convolutional("CIFAR-10, 20 % wrong", "cifar10", noise=0.2, **_FEWER),
    _convolutional("CIFAR-100", "cifar100", limit=4000),
    _tuned("Fashion-MNIST, 5 to 9 after 0 to 4", _FASHION),
    _perceptron("Source code", "source-code", at=_EARLY),
    _perceptron("Table", "table"),
    _perceptron("Table, 20 % taken for neighbours", "table", noise=0.2, **_NEIGHBOUR),
    _perceptron("Clicks", "clicks", 0.05, _SHORT, unit="100 × log-loss"),
    _perceptron("Breast cancer", "breast-cancer", 0.05, _LATE),
)
_TEXTS = (
    _language("Source bytes", "source-bytes", (1.0, 2.0, 4.0, 8.0)),
    _language(
        "Help bytes after source bytes",
        "help-bytes",
        (0.5, 1.0, 2.0, 4.0),
        pretrained="source-bytes",
    ),
)
_ANEW: dict[str, Any] = {"anew": True, "held_out": True, "tuning_seeds": 3}
_WRONG: dict[str, Any] = {"noise": 0.2, **_ANEW}
_ALIKE: dict[str, Any] = {"noise_kind": NoiseKind.ALIKE, **_WRONG}
_JUDGED = (
    _perceptron("Adult", "adult", limit=_PLACES, **_ANEW),
    _perceptron("Adult, 20 % wrong", "adult", **_WRONG),
    _perceptron("Adult, copies", "adult", copies=1.0, **_FEWER, **_ANEW),
    _perceptron("Breast cancer", "breast-cancer", 0.05, _LATE, **_ANEW),
    # Of its files some are tested on, so that it cannot be dealt out anew.
    _perceptron("Source code", "source-code", at=_EARLY, **{**_ANEW, "anew": False}),
    _convolutional("CIFAR-10", "cifar10", limit=4000, **_ANEW),
    _convolutional("CIFAR-10, 20 % wrong", "cifar10", **_FEWER, **_WRONG, adds=True),
    _convolutional("CIFAR-10, 20 % taken for what is alike", "cifar10", **_FEWER, **_ALIKE),
    _convolutional("CIFAR-100", "cifar100", limit=4000, **_ANEW),
    _convolutional("CIFAR-100, 20 % wrong", "cifar100", **_FEWER, **_WRONG),
    _perceptron(
        "Digits, 20 % wrong", "digits", 0.2, _LATE, **{**_WRONG, "places": 1000}, adds=True
    ),
    _perceptron(
        "Digits, 20 % taken for what is alike", "digits", 0.2, _LATE, **{**_ALIKE, "places": 1000}
    ),
    _perceptron("Fashion-MNIST, 20 % wrong", _FASHION, **_WRONG, adds=True),
    _perceptron("Fashion-MNIST, 20 % taken for what is alike", _FASHION, **_ALIKE),
    _perceptron("Fashion-MNIST, skewed", _FASHION, at=_EARLY, **_SKEWED, **_ANEW),
    _convolutional("Fashion-MNIST, convolutional", _FASHION, limit=4000, **_ANEW),
)
_GROUNDS: Mapping[str, dict[str, Any]] = {
    "": {},
    ", skewed": _SKEWED,
    ", 20 % wrong": {"noise": 0.2},
    ", 40 % wrong": {"noise": 0.4},
}
_THREE: Mapping[str, tuple[str, str, Lengths, int]] = {
    "perceptron": ("MNIST", "perceptron", ((1.0, 2.0, 4.0, 8.0), (4.0, 8.0)), _PLACES),
    "convolutional": ("MNIST", "tiny_cnn", ((1.0, 2.0, 4.0, 8.0), (4.0, 8.0)), _PLACES),
    "residual": ("Digits", "resnet9_narrow", ((2.0, 4.0, 8.0, 16.0), (8.0, 16.0)), 1000),
}
"""Of each net the data, its name, lengths, and training examples."""


def _three_nets() -> Iterator[Workload]:
    for title, (data, model, at, examples) in _THREE.items():
        for ground, made in _GROUNDS.items():
            size = {"places" if made else "limit": examples}
            fields = {**made, **size, "anew": True, "held_out": True, "tuning_seeds": 1}
            own = _perceptron(f"{data}, {title}{ground}", data.lower(), at=at, **fields)
            yield replace(own, recipe=replace(own.recipe, model=model))
    fields = {"limit": _PLACES, "anew": True, "held_out": True, "tuning_seeds": 1}
    at = (3.0, 6.0, 12.0), (12.0,)
    own = _perceptron("Fashion-MNIST, narrow convolutional", _FASHION, at=at, **fields)
    yield replace(own, recipe=replace(own.recipe, model="tiny_cnn"))


_SMOOTHED_TEXT = (f"{BASELINE}+smoothing-0.1", f"{OURS}+smoothing-0.1")
STAGES: Mapping[str, Stage] = {
    "develop": Stage("Development", _DEVELOPMENT, first_seed=0, arms=RIVALS),
    "confirm": Stage("Confirmation", _CONFIRMATION, first_seed=200),
    "language": Stage("Language", _TEXTS, first_seed=400, arms=(*TEXT_ARMS, *_SMOOTHED_TEXT)),
    "instead": Stage(
        "Instead of auto, and with it", _JUDGED, first_seed=600, arms=(*INSTEAD, *ADDED)
    ),
    "nets": Stage("Three nets", (*_three_nets(),), first_seed=1000, arms=NETS),
}
