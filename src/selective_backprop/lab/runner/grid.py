"""A grid of runs: train what is not recorded yet, in one process or several.

Runs of one seed and length take turns from evaluation to evaluation, the one that is least far
going next, so that a machine that slows down or speeds up does so for all strategies alike.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import selective_backprop as sb
from selective_backprop.lab.records.schema import Point, Run
from selective_backprop.lab.runner.run_store import RunStore
from selective_backprop.lab.runner.worker_pool import run_jobs
from selective_backprop.lab.training.failing import in_words
from selective_backprop.lab.training.resumable_run import (
    CheckpointPolicy,
    ResumableRun,
    identity_of,
)
from selective_backprop.lab.training.run import TrainingRun
from selective_backprop.lab.training.run_config import RunConfig
from selective_backprop.lab.training.stopping import asked_to_stop

Watch = Callable[[RunConfig, Point | None], None]
"""Told of each evaluation, those included that an interrupted run had come to before it goes on;
and of None for a run whose finished record is there already."""

_ADVICE = "Lower the learning rate: --lr of train and compare."


def run_grid(
    plans: Sequence[RunConfig],
    store: RunStore,
    *,
    watch: Watch = lambda plan, point: None,
    jobs: int = 1,
    threads: int = 1,
    interleave: bool = True,
    log_examples: bool = True,
    replace: bool = False,
    resume: bool = True,
) -> list[Run]:
    """Run what is not recorded yet, and return the records of all plans.

    Whatever stops this, at any moment, costs at most what the runs under way have done since their
    last checkpoints: called again, it goes on from there.

    Args:
        plans: what to run. Groups of runs that take turns are begun in the order of their first.
        store: where records go, and what data are read from.
        watch: told of each evaluation.
        jobs: how many groups at a time; from 2, each in a process of its own.
        threads: CPU threads of each of those processes.
        interleave: whether the runs of the same data, seed and length take turns. Otherwise each
            run is a group of its own.
        log_examples: whether to record what becomes of each training example.
        replace: run again what is recorded already; the old records are kept beside the new.
        resume: whether interrupted runs go on from their checkpoints, or begin anew.

    Returns:
        One finished record for each plan, in their order.

    Raises:
        RecordError: if a record cannot be read or written, or a checkpoint is of another run, or
            either of a model whose file has changed.
        LossError: once all others are done, of runs that met losses that are not finite, by name.
        SelectiveBackpropError: what else a run raised; the others keep what they have done.
        KeyboardInterrupt: after Ctrl-C, when everything is kept.
        SystemExit: after SIGTERM, likewise.
    """
    missing: list[RunConfig] = []
    for plan in plans:
        if not replace and store.has_finished(plan):
            watch(plan, None)
        else:
            missing.append(plan)
    groups = [
        _Group(tuple(group), store, log_examples, replace, resume)
        for group in (_groups(missing) if interleave else [[plan] for plan in missing])
    ]
    failed: list[str] = []

    def hear(group: _Group, news: _News | None) -> None:
        if isinstance(news, str):
            failed.append(news)
        elif news is not None:
            number, point = news
            watch(group.plans[number], point)

    run_jobs(groups, jobs=jobs, threads=threads, watch=hear)
    store.keep_packed()
    if failed:
        raise sb.LossError("\n".join(failed))
    return [store.read(plan) for plan in plans]


def _groups(plans: Iterable[RunConfig]) -> list[list[RunConfig]]:
    """Return the plans that are to take turns: one data set, one seed, one length."""
    found: dict[object, list[RunConfig]] = {}
    for plan in plans:
        key = plan.recipe.data, plan.limit, plan.noise, plan.seed, plan.length
        found.setdefault(key, []).append(plan)
    return list(found.values())


_News = tuple[int, Point] | str
"""An evaluation of one of a group's runs, or what is to be said of one that failed."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Runs that take turns in one process, each with a record of its own."""

    plans: tuple[RunConfig, ...]
    store: RunStore
    log_examples: bool
    replace: bool
    resume: bool

    @property
    def words(self) -> str:
        plan = self.plans[0]
        alone = f"{plan.arm}, " if len(self.plans) == 1 else ""
        return f"{alone}seed {plan.seed}, {plan.length.words}"

    def carry_out(self, tell: Callable[[_News], None]) -> None:
        """Run them, or the rest of them; a run whose losses are not finite ends alone."""
        data = self.store.data(self.plans[0])
        # All are built before anything is written, so that what cannot be built leaves no record.
        runs = [TrainingRun(plan, data, follows=self.log_examples) for plan in self.plans]
        keeping = CheckpointPolicy(self.store.folder, self.store.every, self.resume, self.replace)
        numbers = {plan: number for number, plan in enumerate(self.plans)}
        with ExitStack() as stack, asked_to_stop() as stop:
            unfinished: list[ResumableRun] = []
            for run in runs:
                identity = identity_of(run.plan, data)
                unfinished.append(ResumableRun(run, self.store.header(run.plan), identity, keeping))
                stack.callback(unfinished[-1].close)
                for point in run.points:
                    tell((numbers[run.plan], point))
            while unfinished:
                sitting = min(unfinished, key=lambda each: each.run.done)
                plan = sitting.run.plan
                # Those that stand still are worth keeping; where this one stands is unknown.
                with _saved_on_error([each for each in unfinished if each is not sitting]):
                    try:
                        point = sitting.advance(stop)
                        over = sitting.run.finished
                    except sb.LossError as error:
                        point, over = None, True
                        tell(in_words(f"{plan.arm}, seed {plan.seed}", error, _ADVICE))
                if over:
                    unfinished.remove(sitting)
                if point is not None:
                    with _saved_on_error(unfinished):
                        tell((numbers[plan], point))
                if stop.asked:
                    _save(unfinished)
                    stop.leave()


@contextmanager
def _saved_on_error(sittings: Sequence[ResumableRun]) -> Generator[None]:
    try:
        yield
    except Exception:
        _save(sittings)
        raise


def _save(sittings: Iterable[ResumableRun]) -> None:
    for sitting in sittings:
        sitting.save()
