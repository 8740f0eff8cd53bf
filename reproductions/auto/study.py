"""Redo a stage of the study: find learning rates, train what is missing, then write its page."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

import selective_backprop as sb
from reproductions.auto.page import HOW, adds_up, compose, counts
from reproductions.auto.protocol import Stage, Workload
from reproductions.auto.results import RUNS, find_rates, read_finished, read_results
from reproductions.training import Order, absent_data, train_missing
from selective_backprop_lab.names import find_name
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.training.run_config import RunConfig


def run_study(
    console: Console,
    stage: Stage,
    order: Order,
    *,
    only: Sequence[str] = (),
    arms: Sequence[str] = (),
) -> None:
    """Train the missing runs of a stage, or of part of it, then write the page of all its records.

    `only` names the workloads to train, and `arms` the strategies; () stands for all.
    """
    chosen = replace(stage, workloads=_chosen(stage, only))
    asked = {find_name("strategy", arm, stage.arms, more=" in the study") for arm in arms}
    if order.trains:
        _train(console, chosen, order, [arm for arm in stage.arms if arm in asked] or stage.arms)
    seeds = order.seeds if order.trains else None  # None: all on record
    results = read_results(stage, order.out, seeds, order.device)
    shown = [each for each in results if len(each.runs)]
    if not shown:
        raise sb.RecordError(f"{order.out / RUNS} has no finished run of the stage {stage.title}")
    page = order.out / "index.md"
    text = f"# {stage.title}\n\n{HOW}\n\n{compose(results)}"
    if any(each.workload.adds for each in shown):
        text += f"\n{adds_up(shown).to_markdown()}"
    with replacing(page) as file:
        file.write(text.encode())
    console.print(counts(shown))
    console.print(f"Open {page}", soft_wrap=True)


def _chosen(stage: Stage, only: Sequence[str]) -> tuple[Workload, ...]:
    there = {workload.name: workload for workload in stage.workloads}
    names = [find_name("workload", name, there, more=" in this stage") for name in only]
    return tuple(there[name] for name in dict.fromkeys(names)) or stage.workloads


def _train(console: Console, stage: Stage, order: Order, arms: Sequence[str]) -> None:
    tuning: list[RunConfig] | None = None
    while True:
        there = read_finished(order.out)
        # Rates beyond the edge of a grid are tried until the best is not at the edge.
        found = [find_rates(each, there, order.device, arms) for each in stage.workloads]
        if (wanted := [plan for plans, *_ in found for plan in plans]) == tuning:
            break
        tuning = wanted
        if absent := absent_data(tuning, order.root):
            raise sb.DataError("\n".join(absent.values()))
        _train_some(console, "Runs that find learning rates", tuning, order)
    plans = [
        plan
        for workload, (*_, rates) in zip(stage.workloads, found, strict=True)
        for plan in workload.plans(arms, rates, stage.seeds(order.seeds), order.device)
    ]
    # A seed of each workload after the other, so that few seeds say something.
    _train_some(console, "Runs at the best rates", sorted(plans, key=lambda p: p.seed), order)


def _train_some(console: Console, what: str, plans: Sequence[RunConfig], order: Order) -> None:
    console.print(f"{what}: ", end="")
    try:
        train_missing(console, plans, order, order.out / RUNS)
    except sb.LossError as error:  # the others are done, and a rate at which a run diverges is out
        console.print(f"Diverged, and left out:\n{error}", soft_wrap=True)
