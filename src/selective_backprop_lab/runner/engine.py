"""Engines carry out jobs, here or elsewhere, and pass on each step as it happens.

There are two: `local_pool` uses processes on this machine, and `ray_cluster` a Ray cluster. Jobs
write their own files, so all engines leave the same records.
"""

import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeVar, runtime_checkable

import selective_backprop as sb


@runtime_checkable
class Job(Protocol):
    """Work that leaves files behind, and can be sent to another process."""

    @property
    def name(self) -> str:
        """The job's name in error messages."""

    @property
    def gpus(self) -> int:
        """The number of GPUs that the job needs."""

    def steps(self) -> Generator[Any]:
        """Do the job, or the rest of it, and yield the result of each step.

        If it is closed early, or interrupted by Ctrl-C or SIGTERM, the job saves what it has done.
        """


JobT = TypeVar("JobT", bound=Job)


@runtime_checkable
class Engine(Protocol):
    """Carries out jobs."""

    def __call__(
        self, work: Sequence[JobT], *, jobs: int, threads: int, watch: Callable[[JobT, Any], None]
    ) -> None:
        """Carry out jobs.

        If this is stopped at any moment, running jobs lose at most the work since their last
        checkpoints.

        Args:
            work: the jobs, in the order in which to begin them.
            jobs: how many jobs run at a time.
            threads: CPU threads of each job.
            watch: called with each step of a job, as it happens.

        Raises:
            SelectiveBackpropError: if a job raised this error, or a process was killed.
        """


def steps_and_error(job: Job) -> Generator[Any]:
    """Yield a job's steps and, if it fails, the error in a form that any process can read."""
    try:
        with closing(job.steps()) as steps:
            yield from steps
    except sb.SelectiveBackpropError as error:
        yield error
    except Exception as error:  # a user's model may raise anything
        trace = "".join(traceback.format_exception(error))
        yield sb.RecordError(f"{job.name}: {trace}")


def killed(running: Sequence[Job]) -> sb.RecordError:
    """Return the error for a process that was killed while these jobs ran."""
    names = "; ".join(job.name for job in running)
    return sb.RecordError(
        f"a process was killed while these ran: {names}. Finished runs are kept. Repeat the "
        "command, with fewer --jobs if memory ran out."
    )
