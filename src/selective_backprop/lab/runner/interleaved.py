"""Several runs side by side in one process, taking turns, each into a record of its own."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path

import selective_backprop as sb
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.nets.fingerprint import fingerprint, refuse_changed
from selective_backprop.lab.records.schema import Header, Point, Run, is_recorded, read_run
from selective_backprop.lab.training.failing import in_words
from selective_backprop.lab.training.resumable_run import Keeping, Sitting, identity_of
from selective_backprop.lab.training.run import TrainingRun
from selective_backprop.lab.training.run_config import Plan
from selective_backprop.lab.training.stopping import asked_to_stop

Watch = Callable[[Plan, Point | None], None]
"""Told of each evaluation, those included that an interrupted run had come to before it goes on;
and of None for a run whose finished record is there already."""

_ADVICE = "Lower the learning rate: --lr of train and compare."


def run_plans(
    plans: Sequence[Plan],
    data: ImageData,
    folder: Path,
    *,
    command: str,
    watch: Watch,
    replace: bool = False,
    resume: bool = True,
    every: float | None = None,
    follows: bool = False,
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
        resume: whether interrupted runs go on from their checkpoints, or begin anew.
        every: seconds of training between two checkpoints, as `Keeping` has it.
        follows: whether it is kept, beside each record, what became of each training example.

    Returns:
        One finished record for each plan, in their order.

    Raises:
        RecordError: if a record cannot be read or written, or a checkpoint is of another run, or
            either of a model whose file has changed.
        LossError: once all others are done, of runs that met losses that are not finite, by name.
        KeyboardInterrupt: after Ctrl-C, when everything is kept.
        SystemExit: after SIGTERM, likewise.
    """
    keeping = Keeping(folder, every, resume, replace)
    headers = {plan: plan.header(command) for plan in plans}
    paths = {plan: folder / plan.record_name for plan in plans}
    missing: list[Plan] = []
    for plan in plans:
        if not replace and is_whole(plan, paths[plan]):
            watch(plan, None)
        else:
            missing.append(plan)
    failed: list[str] = []
    for rivals in groups(missing):
        failed += _take_turns(rivals, data, headers, watch, keeping, follows=follows)
    if failed:
        raise sb.LossError("\n".join(failed))
    return [read_run(paths[plan]) for plan in plans]


def is_whole(plan: Plan, path: Path) -> bool:
    """Return whether a plan's record is finished, and holds what its probes saw.

    Raises:
        RecordError: if there is one that was damaged, or is of a model whose file has changed.
    """
    try:
        run = read_run(path) if is_recorded(path) else None
    except sb.RecordError as error:
        raise sb.RecordError(f"{error} To run it anew, move that file away.") from error
    if run is None or not run.finished:
        return False
    seen = {observation.probe for observation in run.observations}
    if not all(probe.words in seen for probe in plan.probes):
        return False
    model = plan.recipe.model
    if run.header.model_file is not None:
        refuse_changed(path, model, run.header.model_file, fingerprint(model))
    return True


def groups(plans: Iterable[Plan]) -> Iterator[list[Plan]]:
    """Yield the plans that are to take turns: one seed, one length, every arm."""

    def together(plan: Plan) -> tuple[int, str, float]:
        return plan.seed, plan.length.unit, plan.length.value

    for _, group in groupby(sorted(plans, key=together), key=together):
        yield list(group)


def _take_turns(
    plans: Sequence[Plan],
    data: ImageData,
    headers: dict[Plan, Header],
    watch: Watch,
    keeping: Keeping,
    *,
    follows: bool,
) -> list[str]:
    """Run plans, and return what is to be said of those that failed by their losses."""
    failed: list[str] = []
    runs = [
        TrainingRun(plan, data, follows=follows) for plan in plans
    ]  # before anything is written
    with ExitStack() as stack, asked_to_stop() as stop:
        sittings: list[Sitting] = []
        for run in runs:
            identity = identity_of(run.plan, data)
            sittings.append(Sitting(run, headers[run.plan], identity, keeping))
            stack.callback(sittings[-1].close)
            for point in run.points:
                watch(run.plan, point)
        while sittings:
            sitting = min(sittings, key=lambda each: each.run.done)
            plan = sitting.run.plan
            # Those that stand still are worth keeping; where this one stands is unknown.
            with _kept([each for each in sittings if each is not sitting]):
                try:
                    point = sitting.advance(stop)
                    over = sitting.run.finished
                except sb.LossError as error:
                    point, over = None, True
                    failed.append(in_words(f"{plan.arm}, seed {plan.seed}", error, _ADVICE))
            if over:
                sittings.remove(sitting)
            if point is not None:
                with _kept(sittings):
                    watch(plan, point)
            if stop.asked:
                _save(sittings)
                stop.leave()
    return failed


@contextmanager
def _kept(sittings: Sequence[Sitting]) -> Generator[None]:
    """Save runs that stand still, if the body raises."""
    try:
        yield
    except Exception:
        _save(sittings)
        raise


def _save(sittings: Iterable[Sitting]) -> None:
    for sitting in sittings:
        sitting.save()
