"""What the commands can be told: their options, and what an option's text stands for."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

import selective_backprop as sb
from selective_backprop.lab.budget import Length
from selective_backprop.lab.nets.models import MODELS
from selective_backprop.lab.recipe import RECIPES, Precision, Rates
from selective_backprop.lab.strategies import ARMS
from selective_backprop.lab.training.lr_schedule import Follows


def parse_rate(text: str | float) -> float:
    """Return the number that a share stands for, `1/3` as well as `0.25`.

    Raises:
        BadParameter: if it stands for none.
    """
    try:
        return float(Fraction(text))
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise typer.BadParameter(f"{text} is no number such as 1/3 or 0.25") from error


def parse_budget(text: str) -> Length:
    """Return the length that a budget stands for: `10` is cost, `60s` is seconds.

    Raises:
        ConfigurationError: if it is neither, or not positive.
    """
    number, unit = (text[:-1], "seconds") if text.endswith("s") else (text, "cost")
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise sb.ConfigurationError(
            f"--budget {text}: write a positive number of traditional epochs, such as 10, or of "
            "seconds, such as 60s"
        )
    return Length(unit, value)


def parse_interval(text: str | float) -> float:
    """Return the seconds that a time between checkpoints stands for; infinite for `never`.

    Raises:
        BadParameter: if it is no positive number.
    """
    try:
        seconds = math.inf if text == "never" else float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0.0:
        raise typer.BadParameter(f"{text}: write a positive number of seconds, or never")
    return seconds


Data = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="NAME",
        help=f"Data set: {', '.join(RECIPES)}; or hub:NAME for one of the Hugging Face hub, such "
        "as hub:uoft-cs/cifar10.",
    ),
]
Strategies = Annotated[
    str,
    typer.Option(
        "--strategies",
        metavar="NAMES",
        help=f"Arms to compare, separated by commas: {', '.join(ARMS)}; or all.",
    ),
]
OneStrategy = Annotated[
    str, typer.Option("--strategy", metavar="NAME", help=f"The arm: {', '.join(ARMS)}.")
]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="FOLDER",
        help="Folder that holds the data set's files, as its publisher ships it; digits needs "
        "none. For hub:NAME, the folder in which fetched files are kept.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=1, help="Train on this many examples: a fixed, stratified part."
    ),
]
Noise = Annotated[
    float,
    typer.Option(
        "--noise",
        metavar="SHARE",
        parser=parse_rate,
        show_default="0",
        help="Share of the training labels, in [0, 1), that are replaced by another class, chosen "
        "uniformly; the same ones for every arm and seed. The test set stays clean.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help=f"{', '.join(MODELS)}, or package.module:factory for one of your own, looked for in "
        "the current folder first. Default: the recipe's.",
    ),
]
Seeds = Annotated[
    int, typer.Option("--seeds", metavar="N", min=1, help="How many seeds to run, from 0.")
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="Seed of the weights, the order of the data, the augmentation and the draws.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        metavar="N",
        min=1,
        help="Length of every run in epochs. Default: the recipe's, "
        f"{RECIPES['digits'].epochs} for digits.",
    ),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="COST",
        help="Give every arm the same cost instead of the same epochs: 10 for the cost of 10 "
        "traditional epochs (scoring an example 1, training on it 3), 60s for a minute. Give the "
        "option several times for several budgets.",
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="COST",
        help="End by cost instead of epochs: 10 for the cost of 10 traditional epochs (scoring "
        "an example 1, training on it 3), 60s for a minute.",
    ),
]
Rate = Annotated[
    float,
    typer.Option(
        "--rate",
        metavar="SHARE",
        parser=parse_rate,
        show_default="1/3",
        help="Share of the examples that selective arms train on, in (0, 1].",
    ),
]
Draw = Annotated[
    sb.selectors.Draw,
    typer.Option(
        "--draw",
        metavar="|".join(sb.selectors.Draw),
        help="How selective arms draw: exact takes a fixed number from each window of examples, "
        "bernoulli tosses a coin for each example.",
    ),
]
Warmup = Annotated[
    float | None,
    typer.Option(
        "--warmup",
        metavar="FRACTION",
        parser=parse_rate,
        help="Fraction of a run, in [0, 1), that trains on everything before selection by score "
        "begins. Default: one epoch (at most half the run), or a tenth of a budget.",
    ),
]
Stale = Annotated[
    int,
    typer.Option(
        "--stale",
        metavar="N",
        help="For how many epochs a score is good, where an arm reuses scores or predicts from "
        "them.",
    ),
]
Keep = Annotated[
    float,
    typer.Option(
        "--keep",
        metavar="SHARE",
        parser=parse_rate,
        show_default="0.7",
        help="Share of the data set that is kept by arms that prune it before they train, in "
        "(0, 1].",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size", metavar="N", help="Rows of a training batch. Default: the recipe's."
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option("--lr", metavar="NUMBER", help="Highest learning rate. Default: the recipe's."),
]
LearningRates = Annotated[
    Rates | None,
    typer.Option(
        "--lr-schedule",
        metavar="|".join(Rates),
        help="How the learning rate moves over a run. Default: the recipe's.",
    ),
]
LearningRateFollows = Annotated[
    Follows,
    typer.Option(
        "--lr-follows",
        metavar="|".join(Follows),
        help="What moves the learning rate. run: the share of the run that is done, so that every "
        "arm goes through the whole schedule. epochs (only between epochs), candidates or updates: "
        "the share of those that traditional training of the same length takes; with updates, an "
        "arm that takes fewer per epoch ends before its schedule does, as in many published "
        "comparisons. seconds: the share of a budget in seconds. Selection follows the run.",
    ),
]
Evaluations = Annotated[
    int,
    typer.Option(
        "--evaluations",
        metavar="N",
        min=1,
        help="How often each run is tried on the test set, evenly over its length.",
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        help="CPU threads of each operation. With more than one, seconds vary more.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="cpu, cuda or cuda:1, say. Default: a GPU where there is one.",
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FOLDER", help="Folder for records, and for what is drawn from them."
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again", help="Run again what is recorded already; old records are kept beside the new."
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with a run that was interrupted, from its last checkpoint; the same run as if "
        "it had not been. Where there is none, begin.",
    ),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-every",
        metavar="SECONDS",
        parser=parse_interval,
        help="Seconds of training between two checkpoints of a run, from which it goes on if it is "
        "interrupted; never for none. Default: 30, or more where writing them would take more than "
        "a hundredth of the time.",
    ),
]
TrainingPrecision = Annotated[
    Precision,
    typer.Option(
        "--precision",
        metavar="|".join(Precision),
        help="What training computes in, with every strategy: fp32, or autocast to bf16.",
    ),
]
Train = Annotated[
    bool,
    typer.Option(
        "--train/--no-train",
        help="With --no-train, draw from what is on record, and leave out what is not.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Runs at a time, each in a process of its own. Default: as many as there are cores "
        "for; 1 on a GPU.",
    ),
]
TurnsAtATime = Annotated[
    int,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Seeds and lengths at a time, each in a process of its own, in which the strategies "
        "take turns. With more than one, seconds are those of a machine that has other work.",
    ),
]
Records = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUNS...",
        help="Folders of records, as compare and train write them, or single records; those of "
        "one comparison.",
    ),
]
ReportOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="PLACE",
        help="A file ending in .html for the page alone, else a folder for all that is drawn. "
        "Default: the first folder of records.",
    ),
]
