"""A grid of runs: train what is not recorded yet, in one process or several.

Runs of one seed and length take turns from evaluation to evaluation, the one that is least far
going next, so that a machine that slows down or speeds up does so for all strategies alike.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import selective_backprop as sb
from selective_backprop_lab.records.pack import PACK
from selective_backprop_lab.records.schema import Point, Run, pack_finished
from selective_backprop_lab.runner.engine import Engine
from selective_backprop_lab.runner.local_pool import run_local
from selective_backprop_lab.runner.run_store import RunStore
from selective_backprop_lab.training.resumable_run import ResumableRun
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig
from selective_backprop_lab.training.stopping import asked_to_stop

Watch = Callable[[RunConfig, Point | None], None]
"""Called with each evaluation, also with the earlier ones of an interrupted run that goes on; and
with None for a run whose finished record is there already."""


def run_grid(
    configs: Sequence[RunConfig],
    store: RunStore,
    *,
    watch: Watch = lambda config, point: None,
    engine: Engine = run_local,
    jobs: int = 1,
    threads: int = 1,
    interleave: bool = True,
    log_examples: bool = True,
    replace: bool = False,
    resume: bool = True,
) -> list[Run]:
    """Run what is not recorded yet, and return the records of all runs.

    Whatever stops this, at any moment, costs at most what the runs under way have done since their
    last checkpoints: called again, it goes on from there.

    Args:
        configs: what to run. Groups of runs that take turns are begun in the order of their first.
        store: where records go, and what data are read from.
        watch: called with each evaluation.
        engine: what carries the groups out: processes of this machine, or of a cluster.
        jobs: how many groups at a time; from 2, each in a process of its own.
        threads: CPU threads of each process.
        interleave: whether the runs of the same data, seed and length take turns. Otherwise each
            run is a group of its own.
        log_examples: whether to record what becomes of each training example.
        replace: run again what is recorded already; the old records are kept beside the new.
        resume: whether interrupted runs go on from their checkpoints, or begin anew.

    Returns:
        One finished record for each run, in their order.

    Raises:
        RecordError: if a record cannot be read or written, or a checkpoint is of another run.
        LossError: once all others are done, of runs that met losses that are not finite, by name.
        SelectiveBackpropError: what else a run raised; the others keep what they have done.
        KeyboardInterrupt: after Ctrl-C, when everything is kept.
        SystemExit: after SIGTERM, likewise.
    """
    groups: dict[object, list[RunConfig]] = {}
    for config in configs:
        if not replace and store.has_finished(config):
            watch(config, None)
        else:
            data = config.recipe.data, config.limit, *config.drawn, config.held_out
            key = *data, config.seed, config.length
            groups.setdefault(key if interleave else config, []).append(config)
    # Before there are processes, each of which would train the same net for itself.
    for config in {each.pretraining: each for group in groups.values() for each in group}.values():
        store.weights(config)
    failed: list[str] = []

    def take_in(group: _Group, step: _Step) -> None:
        if isinstance(step, str):
            failed.append(step)
        else:
            watch(*step)

    work = [_Group(group, store, log_examples, replace, resume) for group in groups.values()]
    engine(work, jobs=jobs, threads=threads, watch=take_in)
    if (store.folder / PACK).exists():
        pack_finished(store.folder)
    if failed:
        raise sb.LossError("\n".join(failed))
    return [store.read(config) for config in configs]


_Step = tuple[RunConfig, Point] | str
"""An evaluation of one of a group's runs, or the message of one that failed."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Runs that take turns in one process, each with a record of its own: the engines' `Job`."""

    configs: Sequence[RunConfig]
    store: RunStore
    log_examples: bool
    replace: bool
    resume: bool

    @property
    def name(self) -> str:
        first = self.configs[0]
        alone = f"{first.arm}, " if len(self.configs) == 1 else ""
        return f"{alone}seed {first.seed}, {first.length}"

    @property
    def gpus(self) -> int:
        return int(self.configs[0].device != "cpu")

    def steps(self) -> Generator[_Step]:
        """Run them, or the rest of them; a run whose losses are not finite ends alone."""
        store, data = self.store, self.store.data(self.configs[0])
        # All are built before anything is written, so that what cannot be built leaves no record.
        runs = [
            TrainingRun(config, data, weights=store.weights(config), log_examples=self.log_examples)
            for config in self.configs
        ]
        with ExitStack() as stack, asked_to_stop() as stop:
            unfinished: list[ResumableRun] = []
            for run in runs:
                resumable = ResumableRun(
                    run,
                    store.folder,
                    command=store.command,
                    every=store.every,
                    resume=self.resume,
                    replace=self.replace,
                )
                stack.callback(resumable.close)
                unfinished.append(resumable)
                for point in run.points:
                    yield run.config, point
            while unfinished:
                current = min(unfinished, key=lambda each: each.run.done)
                config = current.run.config
                # Those that stand still are worth keeping; where this one stands is unknown.
                with _saved_on_error([each for each in unfinished if each is not current]):
                    try:
                        point = current.advance(stop)
                        over = current.run.finished
                    except sb.LossError as error:
                        point, over = None, True
                        yield _failure(config, error)
                if over:
                    unfinished.remove(current)
                if point is not None:
                    with _saved_on_error(unfinished):
                        yield config, point
                if stop.asked:
                    _save(unfinished)
                    stop.leave()


def _failure(config: RunConfig, error: sb.LossError) -> str:
    """Say which run failed and why, and what to do at a command line."""
    # What the library's message goes on with is about arguments of a loader, which no command has.
    reason, _, _ = str(error).partition(" Mend the data")
    advice = " Lower the learning rate: --lr of train and compare." if "finite" in reason else ""
    return f"{config.arm}, seed {config.seed}: {reason}{advice}"


@contextmanager
def _saved_on_error(runs: Sequence[ResumableRun]) -> Generator[None]:
    try:
        yield
    except (Exception, GeneratorExit):  # the latter where the step could not be shown
        _save(runs)
        raise


def _save(runs: Iterable[ResumableRun]) -> None:
    for run in runs:
        run.save()
