"""Several runs side by side in one process, taking turns, each into a record of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import selective_backprop as sb
from selective_backprop.lab.datasets import ImageData
from selective_backprop.lab.records import Header, Point, Run, read_run, record_path
from selective_backprop.lab.runs import Plan, TrainingRun
from selective_backprop.lab.writer import RunWriter

Watch = Callable[[Plan, Point | None], None]
"""Told of each evaluation; of None for a run whose finished record is there already."""


def run_plans(
    plans: Sequence[Plan],
    data: ImageData,
    folder: Path,
    *,
    command: str,
    watch: Watch,
    replace: bool = False,
) -> list[Run]:
    """Run what is not recorded yet, and return the records of all plans.

    Runs of one seed and length take turns from evaluation to evaluation, the one that is least
    far going next, so that a machine that slows down or speeds up does so for all arms alike.

    Args:
        plans: what to run.
        data: the data set of all plans.
        folder: where records lie and go.
        command: what was typed, for the records.
        watch: told of each evaluation.
        replace: run again what is recorded already; the old records are kept beside the new.

    Returns:
        One finished record for each plan, in their order.

    Raises:
        RecordError: if a record cannot be read or written.
    """
    headers = {
        plan: Header.here(plan.config(), arm=plan.arm, seed=plan.seed, command=command)
        for plan in plans
    }
    paths = {plan: record_path(folder, headers[plan]) for plan in plans}
    missing: list[Plan] = []
    for plan in plans:
        if not replace and is_whole(plan, paths[plan]):
            watch(plan, None)
        else:
            missing.append(plan)
    for rivals in _rivals(missing):
        _take_turns(rivals, data, folder, headers, watch, replace)
    return [read_run(paths[plan]) for plan in plans]


def is_whole(plan: Plan, path: Path) -> bool:
    """Return whether a plan's record is finished, and holds what its probes saw.

    Raises:
        RecordError: if there is one that was damaged.
    """
    try:
        run = read_run(path) if path.exists() else None
    except sb.RecordError as error:
        raise sb.RecordError(f"{error} To run it anew, move that file away.") from error
    if run is None or not run.finished:
        return False
    seen = {observation.probe for observation in run.observations}
    return all(probe.words in seen for probe in plan.probes)


def _rivals(plans: Iterable[Plan]) -> Iterator[list[Plan]]:
    """Yield the plans that are to run at the same time: one seed, one length, every arm."""

    def together(plan: Plan) -> tuple[int, str, float]:
        return plan.seed, plan.length.unit, plan.length.value

    for _, group in groupby(sorted(plans, key=together), key=together):
        yield list(group)


def _open(plan: Plan, folder: Path, header: Header, *, replace: bool) -> RunWriter:
    # A finished record that lacks what a probe would have seen makes room as well.
    return RunWriter.open(folder, header, replace=replace or bool(plan.probes))


def _take_turns(
    plans: Sequence[Plan],
    data: ImageData,
    folder: Path,
    headers: dict[Plan, Header],
    watch: Watch,
    replace: bool,
) -> None:
    runs = [TrainingRun(plan, data) for plan in plans]  # before anything is written
    with ExitStack() as stack:
        writers = {
            plan: stack.enter_context(_open(plan, folder, headers[plan], replace=replace))
            for plan in plans
        }
        while runs:
            run = min(runs, key=lambda run: len(run.points) / run.plan.evaluations)
            point = run.advance()
            writers[run.plan].point(point)
            for observation in run.look():
                writers[run.plan].observation(observation)
            watch(run.plan, point)
            if run.finished:
                writers[run.plan].end(run.meters())
                runs.remove(run)
