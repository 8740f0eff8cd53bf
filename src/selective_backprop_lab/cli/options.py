"""The options of the commands, each declared once, and sets of options that commands share."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import selective_backprop as sb
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.cli.command_line import find_device, look_here
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import Composition, NoiseKind
from selective_backprop_lab.data.datasets import LabData, data_name
from selective_backprop_lab.nets.models import MODELS, model_name
from selective_backprop_lab.recipe import RECIPES, Precision, Rates, Recipe, find_recipe
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.process import limit_threads
from selective_backprop_lab.training.run_config import RunConfig


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each argument of a command that is a set of options by these options."""
    sets, parameters = dict[str, Any](), list[inspect.Parameter]()
    for each in inspect.signature(command).parameters.values():
        if is_dataclass(each.annotation):
            sets[each.name] = each.annotation
            parameters += inspect.signature(sets[each.name]).parameters.values()
        else:
            parameters.append(each.replace(kind=each.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in sets.items()
        }
        command(**chosen, **given)

    run.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run


def parse_rate(text: str | float) -> float:
    """Return a share as a number; `1/3` and `0.25` are both understood."""
    try:
        return float(Fraction(text))
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise typer.BadParameter(f"{text} is no number such as 1/3 or 0.25") from error


def parse_budget(text: str) -> Budget:
    """Return the length that a budget stands for: `10` is passes, `60s` is seconds."""
    number, unit = (text[:-1], "seconds") if text.endswith("s") else (text, "cost")
    value = _number(number)
    if not 0.0 < value < math.inf:
        raise sb.ConfigurationError(
            f"--budget {text}: write a positive number of passes, such as 10, or of "
            "seconds, such as 60s"
        )
    return Budget(unit, value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def parse_interval(text: str | float) -> float:
    """Return the seconds between checkpoints; infinite for `never`."""
    seconds = math.inf if text == "never" else _number(str(text))
    if not seconds > 0.0:
        raise typer.BadParameter(f"{text}: write a positive number of seconds, or never")
    return seconds


def option(metavar: str, help: str, **more: Any) -> Any:
    """Declare an option by the placeholder for its value, and its help."""
    return typer.Option(metavar=metavar, help=help, **more)


def _share(help: str, default: str) -> Any:
    return option("SHARE", help, parser=parse_rate, show_default=default)


Root = Annotated[
    Path | None, option("FOLDER", "Folder that holds the data set's files as published.")
]
Limit = Annotated[
    int | None,
    option("N", "Use only this many training examples. Classes keep their shares.", min=1),
]
Noise = Annotated[
    float,
    _share(
        "Share of the training labels, in [0, 1), to replace by wrong ones. All strategies and "
        "seeds get the same labels. The test set stays clean.",
        "0",
    ),
]
Model = Annotated[
    str | None,
    option(
        "NAME",
        f"{', '.join(MODELS)}; or package.module:factory for your own, looked for first in the "
        "current folder. Default: the recipe's.",
    ),
]
Seeds = Annotated[int, option("N", "How many seeds to run, counted from 0.", min=1)]
Rate = Annotated[
    float, _share("Share of the examples that selective strategies train on, in (0, 1].", "1/3")
]
BatchSize = Annotated[
    int | None, option("N", "Examples per training batch. Default: the recipe's.")
]
TrainingPrecision = Annotated[
    Precision, option("|".join(Precision), "Compute in fp32, or in bf16 by autocast.")
]
Threads = Annotated[
    int, option("N", "CPU threads per operation. With more than one, timings vary more.", min=1)
]
Device = Annotated[
    str | None, option("NAME", "cpu, cuda or cuda:1, for example. Default: a GPU if there is one.")
]
Json = Annotated[Path | None, option("FILE", "Write the findings to this file.")]
CheckpointEvery = Annotated[
    float | None,
    option(
        "SECONDS",
        "Seconds of training between two checkpoints, or never. Default: 30, or more if writing "
        "them would take over 1 % of the time.",
        parser=parse_interval,
    ),
]
COST = (
    "Cost of each run, instead of --epochs. 10 is 10 passes, the cost of 10 epochs of traditional "
    "training; scoring an example costs a third of training on it. 60s is a minute. compare "
    "accepts this option several times."
)
DATA = (
    f"Data set: {', '.join(RECIPES)}; or package.module:function for your own, looked for first in "
    "the current folder. Each has a recipe: its usual model, batch size, learning rate and epochs. "
    "mnist:5-9 is mnist with only the classes 5 to 9. bench also takes the shape of made-up "
    "images: 3x32x32, or 1x28x28/5 for 5 classes."
)
# Only the reproductions use these two.
FromRecords = Annotated[
    bool,
    typer.Option(
        "--from-records",
        help="Train nothing. Make what the records allow, of this repository or of the folder that "
        "--out names, and leave out the rest.",
    ),
]
Jobs = Annotated[
    int | None,
    option("N", "Runs at a time. Default: as many as there are cores for; 1 on a GPU.", min=1),
]


def _exponent(help: str) -> Any:
    return option("EXPONENT", help, show_default="0")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options of `train` and `compare` that describe the training."""

    data: Annotated[str, option("NAME", DATA)] = "digits"
    pretrained: Annotated[
        str | None,
        option(
            "NAME",
            "Fine-tune: begin with a net trained traditionally on this data set, with a new last "
            "layer. It is trained once for all runs of --out, and this is no part of their cost.",
        ),
    ] = None
    epochs: Annotated[
        int | None,
        option(
            "N",
            "Epochs of each run, whatever they cost. Without --epochs and --budget, train runs the "
            f"recipe's epochs ({RECIPES['digits'].epochs} for digits), and compare gives every "
            "strategy the cost of as many epochs of traditional training.",
            min=1,
        ),
    ] = None
    rate: Rate = 1 / 3
    root: Root = None
    limit: Limit = None
    skew: Annotated[
        float, _exponent("Make classes unequal: the k-th largest is in proportion to 1/k^EXPONENT.")
    ] = 0.0
    frequent: Annotated[
        float, _share("Give one class this share of the examples, in [0, 1).", "0")
    ] = 0.0
    copies: Annotated[
        float,
        _exponent("Repeat the k-th example of a class in proportion to 1/k^EXPONENT (Zipf's law)."),
    ] = 0.0
    near_copies: Annotated[
        int,
        option(
            "PIXELS",
            "With --copies: shift copies by up to this many pixels, and change their brightness. "
            "The first copy of each example stays as it is.",
        ),
    ] = 0
    places: Annotated[
        int | None,
        option(
            "N",
            "Number of training examples, copies included. Default: as many as the data set has. "
            "With --skew or --frequent, without --copies: as many as the class sizes allow.",
        ),
    ] = None
    noise: Noise = 0.0
    noise_kind: Annotated[
        NoiseKind,
        option(
            "|".join(NoiseKind),
            "Which class a wrong label names: any other, the next one, or one that looks similar.",
        ),
    ] = NoiseKind.UNIFORM
    data_seed: Annotated[
        int,
        option("N", "Seed of the random choices of --skew, --frequent, --copies and --noise."),
    ] = 0
    model: Model = None
    batch_size: BatchSize = None
    lr: Annotated[
        float | None, option("NUMBER", "Highest learning rate. Default: the recipe's.")
    ] = None
    lr_schedule: Annotated[
        Rates | None,
        option("|".join(Rates), "How the learning rate changes over a run. Default: the recipe's."),
    ] = None
    augmentation: Annotated[
        bool,
        typer.Option(
            "--augmentation/--no-augmentation",
            help="Shift and mirror images at random, as the recipe says.",
        ),
    ] = True
    precision: TrainingPrecision = Precision.FP32
    evaluations: Annotated[
        int | None,
        option(
            "N",
            "How often each run is tested on the test set, at even intervals. Default: 20, or "
            "fewer (from 4 on), so that the longest run tests no more examples than it trains on.",
            min=1,
        ),
    ] = None
    threads: Threads = 1
    device: Device = None
    checkpoint_every: CheckpointEvery = None
    again: Annotated[
        bool,
        typer.Option("--again", help="Repeat runs that are recorded already. Keep old records."),
    ] = False

    @property
    def recipe(self) -> Recipe:
        """The recipe of the data, with the changes that the options ask for."""
        return given(
            find_recipe(look_here(self.data)),
            model=self.model and model_name(look_here(self.model)),
            batch_size=self.batch_size,
            learning_rate=self.lr,
            rates=self.lr_schedule,
            augmentation=None if self.augmentation else Augmentation(),
            precision=self.precision,
        )

    def lengths(self, budgets: Sequence[str], *, otherwise: str) -> list[Budget]:
        """Return the lengths of the runs: the typed budgets, or epochs, or the recipe's length."""
        if not budgets:
            if self.epochs is not None:
                return [Budget("epochs", float(self.epochs))]
            return [Budget(otherwise, float(self.recipe.epochs))]
        if self.epochs is not None:
            raise sb.ConfigurationError("give --epochs or --budget, not both")
        return list(dict.fromkeys(parse_budget(budget) for budget in budgets))

    def settings(self, length: Budget) -> StrategyOptions:
        """Return the options that strategies share in runs of a length."""
        # A tenth of a run or, in runs of a number of epochs, one epoch, but at most half of them.
        warmup = min(0.5, 1.0 / length.value) if length.unit == "epochs" else 0.1
        # In runs of one or two epochs, `auto` has none, because too little would be left.
        return self._fill(StrategyOptions, warmup=warmup, warmup_epoch=warmup < 0.5, epochs=None)

    def _fill(self, kind: Any, **more: Any) -> Any:
        # The other fields have the names of options.
        names = {field.name for field in fields(kind)} & vars(self).keys()
        return kind(**{name: getattr(self, name) for name in names} | more)

    def with_evaluations(self, plans: Sequence[RunConfig], data: LabData) -> list[RunConfig]:
        """Return plans on some data with the default number of evaluations, unless it was typed."""
        longest, found = max(plan.length for plan in plans), RunConfig.evaluations
        if self.evaluations is not None or longest.unit == "seconds":
            return list(plans)
        most = int(longest.value * len(data.train_labels) / len(data.test_labels))
        return [replace(plan, evaluations=min(found, max(4, most))) for plan in plans]

    def plans(
        self, strategies: Sequence[str], seeds: Sequence[int], lengths: Sequence[Budget]
    ) -> list[RunConfig]:
        """Return a run for each seed, length and strategy, and set the number of threads."""
        recipe, device = self.recipe, find_device(self.device)
        before = self.pretrained and data_name(look_here(self.pretrained))
        composition = self._fill(Composition, seed=self.data_seed)
        limit_threads(self.threads)
        return [
            self._fill(
                RunConfig,
                recipe=recipe,
                arm=strategy,
                settings=self.settings(length),
                seed=seed,
                length=length,
                device=device,
                composition=composition,
                pretrained=before,
                evaluations=self.evaluations or RunConfig.evaluations,
            )
            for seed in seeds
            for length in lengths
            for strategy in strategies
        ]


def given(recipe: Recipe, **options: Any) -> Recipe:
    """Return a recipe with those options changed that are not None."""
    return replace(recipe, **{name: value for name, value in options.items() if value is not None})
