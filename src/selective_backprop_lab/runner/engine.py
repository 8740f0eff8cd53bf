"""What an engine is: it carries out jobs, here or elsewhere, and hands on each step as it happens.

There are two. `local_pool` uses processes of this machine, `ray_cluster` uses a Ray cluster's.
Jobs write their own files, so every engine leaves the same records.
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
        """What error messages call it."""

    @property
    def gpus(self) -> int:
        """How many GPUs it needs."""

    def steps(self) -> Generator[Any]:
        """Do it, or the rest of it, and yield after each step what came of it.

        Closed before its end, or interrupted by Ctrl-C or SIGTERM, it keeps what it has done.
        """


JobT = TypeVar("JobT", bound=Job)


@runtime_checkable
class Engine(Protocol):
    """Carries out jobs."""

    def __call__(
        self, work: Sequence[JobT], *, jobs: int, threads: int, watch: Callable[[JobT, Any], None]
    ) -> None:
        """Carry out jobs.

        Whatever stops this, at any moment, costs at most what the jobs under way have done since
        their last checkpoints.

        Args:
            work: in the order in which to begin it.
            jobs: how many at a time.
            threads: CPU threads of each.
            watch: called with each step of a job, as it happens.

        Raises:
            SelectiveBackpropError: what a job raised, or that a process was killed.
        """


def steps_and_error(job: Job) -> Generator[Any]:
    """Yield a job's steps and, where it fails, the error, as one that any process can read."""
    try:
        with closing(job.steps()) as steps:
            yield from steps
    except sb.SelectiveBackpropError as error:
        yield error
    except Exception as error:  # whatever a model of the user's raises
        trace = "".join(traceback.format_exception(error))
        yield sb.RecordError(f"{job.name}: {trace}")


def killed(running: Sequence[Job]) -> sb.RecordError:
    """Return the error of a process that was killed while one of these jobs ran in it."""
    names = "; ".join(job.name for job in running)
    return sb.RecordError(
        f"a process was killed while these ran: {names}. What is finished is kept: run the same "
        "again, with fewer --jobs if memory ran out."
    )
