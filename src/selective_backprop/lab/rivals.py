"""The runs of a comparison, in one process or several."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from selective_backprop.lab.comparing import Watch, groups, is_whole, run_plans
from selective_backprop.lab.crew import carry_out
from selective_backprop.lab.places import Place
from selective_backprop.lab.plans import Plan
from selective_backprop.lab.records import Point, Run, read_run, record_name


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

    def carry_out(self, tell: Callable[[tuple[Plan, Point | None]], None]) -> None:
        """Run them, or the rest of them."""
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
        SelectiveBackpropError: what a run raised.
        KeyboardInterrupt: after Ctrl-C, when everything is kept.
        SystemExit: after SIGTERM, likewise.
    """
    files = {
        plan: place.folder / record_name(plan.config(), arm=plan.arm, seed=plan.seed)
        for plan in plans
    }
    missing = []
    for plan in plans:
        if not replace and is_whole(plan, files[plan]):
            watch(plan, None)
        else:
            missing.append(plan)
    tasks = [Rivals(tuple(group), place, replace, resume) for group in groups(missing)]
    carry_out(tasks, jobs=jobs, threads=threads, watch=lambda _, news: news and watch(*news))
    return [read_run(file) for file in files.values()]
