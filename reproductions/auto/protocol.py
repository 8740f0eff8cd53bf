"""What the study behind `auto` trains, fixed before anything ran.

What `auto` does is chosen in the first stage alone. The second has other data, and seeds that no
other record has, and is run once. In both, every strategy has its own learning rate at each length.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from selective_backprop_lab.analysis.grouping import BASELINE
from selective_backprop_lab.analysis.statistics import final_bits, final_error, final_loss
from selective_backprop_lab.analysis.tuning import Cell, Tuned
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import AS_PUBLISHED, Composition
from selective_backprop_lab.data.noise import NoiseKind
from selective_backprop_lab.recipe import Recipe, find_recipe
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.run_config import RunConfig

OURS = "auto"
ARMS = (
    BASELINE,
    "random-backprop",
    "selective-backprop",
    "stale-sb",
    "recorded-sb",
    "kath18-loss",
    "infobatch",
    "easy-skip",
    "kakurenbo",
    OURS,
)
RIVALS = (BASELINE, "recorded-sb", "infobatch", OURS)  # what a rule is tried against
TEXT_ARMS = (
    BASELINE,
    "random-backprop",
    "selective-backprop",
    "recorded-sb",
    "infobatch",
    "easy-skip",
    "tail-sft",
    "token-selection",
    OURS,
)
ORDER = tuple(dict.fromkeys((*ARMS[:-1], *TEXT_ARMS)))
"""All strategies of the study, as tables and figures have them."""
FACTORS = (0.5, 1.0, 2.0)  # of a workload's middle learning rate: the grid to begin with
WIDEST = 8.0  # what a rate of the grid is at most, and one over it at least
TUNING_SEEDS = (900, 901)  # that nothing else has
TABLES = frozenset({"table", "clicks", "breast-cancer"})


@dataclass(frozen=True)
class Workload:
    """Data, a net and lengths on which all strategies are compared."""

    title: str  # what figures and tables call it
    recipe: Recipe  # its learning rate is the middle of the grid, and decays over each run's length
    lengths: tuple[float, ...]  # of traditional training, in passes, rising: its curve
    compared: tuple[float, ...]  # of the others; traditional training has them all
    composition: Composition = AS_PUBLISHED
    limit: int | None = None  # training examples that it is composed of
    pretrained: str | None = None  # data that the net was trained on before; None for no such
    more: tuple[str, ...] = field(default=())  # kinds that its data do not show
    tuning_seeds: int = len(TUNING_SEEDS)  # by which learning rates are found

    # What is to be low: a number of a run, positive.
    measure: Callable[[Run], float] = final_error

    @property
    def unit(self) -> str:
        """What the measure is called."""
        units = {final_loss: "100 × log-loss", final_bits: "100 × bits per byte"}
        return units.get(self.measure, "error in %")

    @property
    def name(self) -> str:
        """What the command line and files call it."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it is an example of, by which means are taken."""
        made = self.composition
        repeats = "near-copies" if made.near_copies else "copies" if made.copies else ""
        skewed = ("skewed" if repeats else "imbalanced") if made.skew else repeats
        noise = "noisy" if made.noise else "clean"
        table = "table" if self.recipe.data in TABLES else ""
        tuned = "fine-tuning" if self.pretrained else ""
        return tuple(kind for kind in (skewed, noise, table, tuned, *self.more) if kind)

    def cells(self, arms: Sequence[str]) -> list[Cell]:
        """Return each of some strategies at each of its lengths."""
        return [
            (arm, Budget("cost", length))
            for arm in arms
            for length in (self.lengths if arm == BASELINE else self.compared)
        ]

    def plan(self, cell: Cell, rate: float, seed: int, device: str) -> RunConfig:
        """Return one run."""
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
            self.plan(cell, rate, seed, device)
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

    title: str  # of its page
    workloads: tuple[Workload, ...]
    first_seed: int  # the others follow
    arms: tuple[str, ...] = ARMS  # those that are compared

    def seeds(self, count: int) -> range:
        """Return so many seeds."""
        return range(self.first_seed, self.first_seed + count)


_PASSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_SHORTER, _LONGER = (tuple(by * length for length in _PASSES) for by in (0.5, 4.0))
_PLACES = 8000


def _perceptron(title: str, data: str, rate: float, **more: Any) -> Workload:
    """Return a workload of 8,000 training examples, of which nothing is augmented."""
    batch = min(64, find_recipe(data).batch_size)
    recipe = replace(
        find_recipe(data),
        model="perceptron",
        batch_size=batch,
        learning_rate=rate,
        augmentation=Augmentation(),
    )
    usual: dict[str, Any] = {"lengths": _PASSES, "compared": (4.0, 16.0)}
    return Workload(title, recipe, **usual | more)


def _convolutional(title: str, data: str, rate: float, **more: Any) -> Workload:
    """Return a workload of a small net with BatchNorm, with the data set's shifts and mirroring.

    Its passes take twice as long as a perceptron's, and there are fewer of them.
    """
    recipe = find_recipe(data)
    # Small nets do not overfit.
    augmentation = replace(recipe.augmentation, cutout=0)
    recipe = replace(
        recipe,
        model="small_cnn",
        batch_size=64,
        learning_rate=rate,
        augmentation=augmentation,
    )
    return Workload(title, recipe, **_SHORT | more)


def _composed(places: int = _PLACES, noise: float = 0.0, **more: Any) -> Composition:
    return Composition(places=places, noise=noise, **more)


_SKEWED: dict[str, Any] = {"skew": 1.5, "copies": 1.0}
_NEAR: dict[str, Any] = {"copies": 1.0, "near_copies": 2}
_NEIGHBOUR: dict[str, Any] = {"noise_kind": NoiseKind.NEIGHBOUR}
_EARLY: dict[str, Any] = {"compared": (2.0, 8.0)}  # where data are skewed most is learned early
_SHORT: dict[str, Any] = {"lengths": _SHORTER, "compared": (2.0, 8.0)}
_TUNED: dict[str, Any] = {"limit": _PLACES, **_SHORT}
_LATE: dict[str, Any] = {"lengths": _LONGER, "compared": (16.0, 64.0)}

STAGES: Mapping[str, Stage] = {
    "develop": Stage(
        "Development",
        (
            _perceptron("Digits", "digits", 0.2, **_EARLY),
            _perceptron("MNIST", "mnist", 0.1, limit=_PLACES),
            _convolutional("MNIST, convolutional", "mnist", 0.1, limit=4000),
            _perceptron("MNIST, skewed", "mnist", 0.1, composition=_composed(**_SKEWED), **_EARLY),
            _perceptron(
                "MNIST, skewed, 10 % wrong",
                "mnist",
                0.1,
                composition=_composed(noise=0.1, **_SKEWED),
            ),
            _convolutional(
                "MNIST, skewed, convolutional",
                "mnist",
                0.1,
                composition=_composed(4000, **_SKEWED),
            ),
            _perceptron("MNIST, copies", "mnist", 0.1, composition=_composed(copies=1.0), **_EARLY),
            _perceptron("MNIST, near-copies", "mnist", 0.1, composition=_composed(**_NEAR)),
            _perceptron(
                "MNIST, imbalanced", "mnist", 0.1, composition=_composed(skew=1.5), **_EARLY
            ),
            _perceptron("MNIST, 20 % wrong", "mnist", 0.1, composition=_composed(noise=0.2)),
            _perceptron(
                "MNIST, 10 % taken for neighbours",
                "mnist",
                0.1,
                composition=_composed(noise=0.1, **_NEIGHBOUR),
            ),
            _perceptron(
                "MNIST, 5 to 9 after 0 to 4", "mnist:5-9", 0.1, pretrained="mnist:0-4", **_TUNED
            ),
            # All of it, with its shifts, until no training example in a hundred is wrong.
            Workload(
                "MNIST, saturated",
                replace(find_recipe("mnist"), model="perceptron"),
                _PASSES,
                (8.0, 16.0),
                tuning_seeds=1,
                more=("saturated",),
            ),
            _perceptron("MNIST-1D", "mnist1d", 0.1, **_LATE, more=("saturated",)),
            _perceptron(
                "MNIST-1D, skewed, 5 % wrong",
                "mnist1d",
                0.1,
                composition=_composed(4000, noise=0.05, **_SKEWED),
                lengths=tuple(2 * length for length in _PASSES),
                compared=(8.0, 32.0),
            ),
        ),
        first_seed=0,
        arms=RIVALS,
    ),
    "confirm": Stage(
        "Confirmation",
        (
            _perceptron("Fashion-MNIST", "fashion-mnist", 0.1, limit=_PLACES),
            _perceptron(
                "Fashion-MNIST, skewed",
                "fashion-mnist",
                0.1,
                composition=_composed(**_SKEWED),
                **_EARLY,
            ),
            _perceptron(
                "Fashion-MNIST, skewed, 10 % wrong",
                "fashion-mnist",
                0.1,
                composition=_composed(noise=0.1, **_SKEWED),
            ),
            _convolutional(
                "Fashion-MNIST, skewed, convolutional",
                "fashion-mnist",
                0.1,
                composition=_composed(4000, **_SKEWED),
            ),
            _perceptron(
                "Fashion-MNIST, near-copies",
                "fashion-mnist",
                0.1,
                composition=_composed(**_NEAR),
            ),
            _perceptron(
                "Fashion-MNIST, 20 % wrong",
                "fashion-mnist",
                0.1,
                composition=_composed(noise=0.2),
            ),
            _convolutional("CIFAR-10", "cifar10", 0.1, limit=4000),
            _perceptron(
                "CIFAR-10, copies", "cifar10", 0.02, composition=_composed(4000, copies=1.0)
            ),
            _convolutional(
                "CIFAR-10, 20 % wrong",
                "cifar10",
                0.1,
                composition=_composed(4000, noise=0.2),
            ),
            _convolutional("CIFAR-100", "cifar100", 0.1, limit=4000),
            _perceptron(
                "Fashion-MNIST, 5 to 9 after 0 to 4",
                "fashion-mnist:5-9",
                0.1,
                pretrained="fashion-mnist:0-4",
                **_TUNED,
            ),
            _perceptron("Source code", "source-code", 0.1, more=("text",), **_EARLY),
            _perceptron("Table", "table", 0.1),
            _perceptron(
                "Table, 20 % taken for neighbours",
                "table",
                0.1,
                composition=_composed(noise=0.2, **_NEIGHBOUR),
            ),
            _perceptron("Clicks", "clicks", 0.05, measure=final_loss, **_SHORT),
            _perceptron("Breast cancer", "breast-cancer", 0.05, **_LATE, more=("saturated",)),
        ),
        first_seed=200,
    ),
    "language": Stage(
        "Language",
        (
            Workload(
                "Source bytes",
                find_recipe("source-bytes"),
                (1.0, 2.0, 4.0, 8.0),
                (4.0,),
                limit=1536,
                tuning_seeds=1,
                more=("text",),
                measure=final_bits,
            ),
            Workload(
                "Help bytes after source bytes",
                find_recipe("help-bytes"),
                (0.5, 1.0, 2.0, 4.0),
                (2.0,),
                pretrained="source-bytes",
                limit=1536,
                tuning_seeds=1,
                more=("text",),
                measure=final_bits,
            ),
        ),
        first_seed=400,
        arms=TEXT_ARMS,
    ),
}
