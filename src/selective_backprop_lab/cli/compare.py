"""The command `compare`: train one recipe with several strategies, and show how they did."""

from pathlib import Path
from typing import Annotated

import selective_backprop as sb
from selective_backprop_lab.cli.options import COST, Seeds, TrainingOptions, option
from selective_backprop_lab.cli.report import show
from selective_backprop_lab.cli.train import train_all
from selective_backprop_lab.strategies import (
    DEFAULT_STRATEGIES,
    STRATEGIES,
    TREATMENTS,
    parse_strategies,
)


def compare(
    training: TrainingOptions,
    strategies: Annotated[
        str,
        option(
            "NAMES",
            f"Strategies to compare, separated by commas: {', '.join(STRATEGIES)}; or all. You can "
            f"add to each: +{', +'.join(TREATMENTS)}. Add only one of smoothing, robust-loss and "
            "trimming. Of these, kath18, kath18-published and kath18-loss-gated take only "
            "smoothing.",
        ),
    ] = ",".join(DEFAULT_STRATEGIES),
    seeds: Seeds = 3,
    budget: Annotated[list[str] | None, option("COST", COST)] = None,
    out: Annotated[Path, option("FOLDER", "Folder for records, table, figure and page.")] = Path(
        "runs/compare"
    ),
    jobs: Annotated[
        int,
        option(
            "N",
            "How many processes train at a time. Each process trains all strategies of one seed "
            "and length in turns. With several, each is slower, as they share the machine.",
            min=1,
        ),
    ] = 1,
) -> None:
    """Train with several strategies, side by side and at equal cost.

    Writes a record per run, comparison.png, table.md and report.html into --out, and prints the
    table. To continue after an interruption, repeat the command.
    """
    lengths = training.lengths(budget or [], otherwise="cost")
    plans = training.plans(parse_strategies(strategies), range(seeds), lengths)
    store = training.store(out)
    from selective_backprop_lab.records.frame import frame_of

    try:
        runs = train_all(plans, store, jobs=jobs, threads=training.threads, replace=training.again)
    except sb.LossError:
        show(frame_of(store.read(plan) for plan in plans), out)
        raise
    show(frame_of(runs), out)
