"""The runs of a comparison, in one process or several."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import selective_backprop as sb
from selective_backprop.lab.records.schema import Point, Run, read_run
from selective_backprop.lab.runner.interleaved import Watch, groups, is_whole, run_plans
from selective_backprop.lab.runner.run_store import Place
from selective_backprop.lab.runner.worker_pool import carry_out
from selective_backprop.lab.training.run_config import Plan


@dataclass(frozen=True, eq=False)
class Rivals:
    """Runs that take turns in one process, so that what they are compared by is measured alike.

    Attributes:
        plans: of one seed and one length.
        place: where to.
        replace: run again what is recorded already.
        resume: whether interrupted runs go on from their checkpoints, or begin anew.
    """

    plans: tuple[Plan, ...]
    place: Place
    replace: bool
    resume: bool

    @property
    def words(self) -> str:
        """The seed and the length."""
        plan = self.plans[0]
        return f"seed {plan.seed}, {plan.length.words}"

    def carry_out(self, tell: Callable[[tuple[Plan, Point | None] | str], None]) -> None:
        """Run them, or the rest of them, and say which failed by their losses."""
        try:
            run_plans(
                self.plans,
                self.place.data(self.plans[0]),
                self.place.folder,
                command=self.place.command,
                watch=lambda plan, point: tell((plan, point)),
                replace=self.replace,
                resume=self.resume,
                every=self.place.every,
                follows=True,
            )
        except sb.LossError as error:
            tell(str(error))  # raised when the other seeds and lengths are done


def run_rivals(
    plans: Sequence[Plan],
    place: Place,
    *,
    jobs: int,
    threads: int,
    watch: Watch,
    replace: bool = False,
    resume: bool = True,
) -> list[Run]:
    """Run what is not recorded yet, as `run_plans` does, several seeds and lengths at a time.

    Args:
        plans: what to run, all on the same data.
        place: where to.
        jobs: how many seeds and lengths at a time; from 2, each in a process of its own.
        threads: CPU threads of each.
        watch: told of each evaluation.
        replace: run again what is recorded already; the old records are kept beside the new.
        resume: whether interrupted runs go on from their checkpoints, or begin anew.

    Returns:
        One finished record for each plan, in their order.

    Raises:
        LossError: once all others are done, of runs that met losses that are not finite, by name.
        SelectiveBackpropError: what a run raised.
        KeyboardInterrupt: after Ctrl-C, when everything is kept.
        SystemExit: after SIGTERM, likewise.
    """
    missing, failed = [], []
    for plan in plans:
        if not replace and is_whole(plan, _file(plan, place.folder)):
            watch(plan, None)
        else:
            missing.append(plan)
    tasks = [Rivals(tuple(group), place, replace, resume) for group in groups(missing)]

    def hear(_: Rivals, news: tuple[Plan, Point | None] | str | None) -> None:
        if isinstance(news, str):
            failed.append(news)
        elif news is not None:
            watch(*news)

    carry_out(tasks, jobs=jobs, threads=threads, watch=hear)
    if failed:
        raise sb.LossError("\n".join(failed))
    return recorded(plans, place.folder)


def recorded(plans: Sequence[Plan], folder: Path) -> list[Run]:
    """Return the records of plans, finished or not, in their order.

    Raises:
        RecordError: if one is missing or damaged.
    """
    return [read_run(_file(plan, folder)) for plan in plans]


def _file(plan: Plan, folder: Path) -> Path:
    return folder / plan.record_name
