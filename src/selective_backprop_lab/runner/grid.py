"""A grid of runs: train what is not recorded yet, in one process or several.

Runs of one seed and length take turns: after each evaluation, the run with the least progress goes
on. If the machine becomes slower or faster, all strategies are affected alike.
"""

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData, load
from selective_backprop_lab.records.files import locked, replacing, told
from selective_backprop_lab.records.lines import PACK
from selective_backprop_lab.records.schema import Point, Run, is_recorded, pack_finished, read_run
from selective_backprop_lab.records.writer import TakenError
from selective_backprop_lab.training.process import asked_to_stop, run_local
from selective_backprop_lab.training.resumable_run import ResumableRun
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig

load_data = lru_cache(maxsize=2)(load)


@dataclass(frozen=True)
class RunStore:
    """Where runs are recorded, and where their data are read."""

    folder: Path  # folder of the records
    root: Path | None = None  # folder of the data sets' files; None if there are none
    command: str = ""  # the typed command, for the records
    every: float | None = None  # seconds of training between two checkpoints; None for the default

    def data(self, config: RunConfig) -> LabData:
        """Return the data that a run trains on, changed as its composition says."""
        composition, redraw = config.drawn
        options = {"root": self.root, "limit": config.limit, "redraw": redraw}
        return composition(load_data(config.recipe.data, hold_out=config.held_out, **options))

    def weights(self, config: RunConfig) -> dict[str, Tensor] | None:
        """Return the weights that a run fine-tunes; the net is trained once for a folder."""
        plan = config.pretraining
        if plan is None:
            return None
        path = self.path(plan).with_suffix(".weights")
        if not path.is_file():
            before, after = self.data(plan), self.data(config)
            one, other = (tuple(data.train_inputs.shape[1:]) for data in (before, after))
            if one != other:
                raise sb.ConfigurationError(
                    f"examples of {before.name} have the shape {one}, but those of {after.name} "
                    f"{other}, so no net can be trained on both"
                )
            run = TrainingRun(plan, before)
            while not run.finished:
                run.advance()
            with told(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file:
                    torch.save(run.model.state_dict(), file)
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged bytes may make the reader raise anything
            raise sb.RecordError(
                f"{path}: cannot be read as weights ({error}). Move that file away to train them "
                "again."
            ) from error

    def path(self, config: RunConfig) -> Path:
        """Return the path of a run's record."""
        return self.folder / config.record_name

    def read(self, config: RunConfig) -> Run:
        """Return a run's record, finished or not."""
        return read_run(self.path(config))

    def has_finished(self, config: RunConfig) -> bool:
        """Return whether a run's record is finished, and holds what its probes saw."""
        path = self.path(config)
        try:
            run = read_run(path) if is_recorded(path) else None
        except sb.RecordError as error:
            raise sb.RecordError(f"{error} To run it again, move that file away.") from error
        if run is None or not run.finished:
            return False
        seen = {observation.probe for observation in run.observations}
        return all(repr(probe) in seen for probe in config.probes)


Watch = Callable[[RunConfig, Point | None], None]
"""Called with each evaluation, including earlier ones of a run that is resumed, and with None for a
run whose finished record exists already."""


def run_grid(
    configs: Sequence[RunConfig],
    store: RunStore,
    *,
    watch: Watch = lambda config, point: None,
    jobs: int = 1,
    threads: int = 1,
    interleave: bool = True,
    log_examples: bool = True,
    replace: bool = False,
    resume: bool = True,
) -> list[Run]:
    """Train runs that are not recorded yet, and return the records of all runs.

    If this is stopped, call it again to continue from the last checkpoints or, without `resume`, to
    start unfinished runs again. A run that another process is training is waited for at the end.

    With `interleave`, the runs of the same data, seed and length are a group that takes turns.
    `jobs` groups run at a time, each in its own process if there are 2 or more. With `replace`,
    recorded runs are repeated, and old records kept.

    Raises:
        LossError: if runs met losses that are not finite; raised after all other runs are done.
        Any other error, also of Ctrl-C and SIGTERM: after the other runs have saved what they did.
    """
    missing = list[RunConfig]()
    for config in configs:
        if not replace and store.has_finished(config):
            watch(config, None)
        else:
            missing.append(config)
    # This comes before processes start, because each would train the same net again.
    for config in {each.pretraining: each for each in missing}.values():
        store.weights(config)
    groups = _groups(missing) if interleave else [[each] for each in missing]
    failed: list[str] = []

    def take_in(group: _Group, step: _Step) -> None:
        if isinstance(step, str):
            failed.append(step)
        else:
            watch(*step)

    many, how = min(jobs, len(groups)) > 1, {"resume": resume, "replace": replace}
    work = [
        _Group(each, store, log_examples, {**how, "shared_gpu": many and each[0].device != "cpu"})
        for each in groups
    ]
    run_local(work, jobs=jobs, threads=threads, watch=take_in)
    if (store.folder / PACK).exists():
        pack_finished(store.folder)
    if failed:
        raise sb.LossError("\n".join(failed))
    if taken := [config for config in configs if not store.read(config).finished]:
        names = ", ".join(config.record_name for config in taken)
        message = f"another process is training {names}; waiting until it is done"
        warnings.warn(message, sb.SelectionWarning, stacklevel=2)
        with locked(store.path(taken[0])):  # until the other process ends this run, or dies
            pass
        more: dict[str, Any] = {"interleave": interleave, "log_examples": log_examples}
        run_grid(taken, store, watch=watch, jobs=jobs, threads=threads, resume=resume, **more)
    return [store.read(config) for config in configs]


def _groups(configs: Iterable[RunConfig]) -> list[list[RunConfig]]:
    groups: dict[object, list[RunConfig]] = {}
    for config in configs:
        data = config.recipe.data, config.limit, *config.drawn, config.held_out
        groups.setdefault((*data, config.seed, config.length), []).append(config)
    return [*groups.values()]


_Step = tuple[RunConfig, Point] | str
"""An evaluation of one of a group's runs, or the message of one that failed."""


@dataclass(frozen=True, eq=False)
class _Group:
    """Runs that take turns in one process, each with its own record: a job of `run_local`."""

    configs: Sequence[RunConfig]
    store: RunStore
    log_examples: bool
    options: Mapping[str, bool]  # of `ResumableRun`

    @property
    def name(self) -> str:
        first = self.configs[0]
        alone = f"{first.arm}, " if len(self.configs) == 1 else ""
        return f"{alone}seed {first.seed}, {first.length}"

    def steps(self) -> Generator[_Step]:
        store, data = self.store, self.store.data(self.configs[0])
        # All runs are built first, so a run that cannot be built leaves no record.
        runs = [
            TrainingRun(config, data, weights=store.weights(config), log_examples=self.log_examples)
            for config in self.configs
        ]
        with ExitStack() as stack, asked_to_stop() as stop:
            unfinished: list[ResumableRun] = []
            for run in runs:
                with suppress(TakenError):  # by another process, which `run_grid` waits for
                    where: dict[str, Any] = {"command": store.command, "every": store.every}
                    resumable = ResumableRun(run, store.folder, **where, **self.options)
                    stack.callback(resumable.close)
                    unfinished.append(resumable)
                    for point in run.points:
                        yield run.config, point
            while unfinished:
                done = [len(each.run.points) / each.run.config.evaluations for each in unfinished]
                current = unfinished[done.index(min(done))]
                config = current.run.config
                # The other runs are at rest and can be saved; the state of this one is unknown.
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
    # The rest of the library's message is about arguments of a loader, which commands lack.
    reason, _, _ = str(error).partition(" Mend the data")
    advice = " Lower the learning rate: --lr of train and compare." if "finite" in reason else ""
    return f"{config.arm}, seed {config.seed}: {reason}{advice}"


@contextmanager
def _saved_on_error(runs: Sequence[ResumableRun]) -> Generator[None]:
    try:
        yield
    except (Exception, GeneratorExit):  # the latter if the step could not be shown
        _save(runs)
        raise


def _save(runs: Iterable[ResumableRun]) -> None:
    for run in runs:
        run.save()
