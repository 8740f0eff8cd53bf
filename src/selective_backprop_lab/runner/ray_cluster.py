"""The engine of a Ray cluster: each job is a task that streams its steps to this process.

All machines of the cluster must have the same packages, and see the current folder and the folders
of records and data at the same paths. Without a cluster, Ray starts one on this machine.
"""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import selective_backprop as sb
from selective_backprop_lab.runner.engine import Job, JobT, killed, steps_and_error
from selective_backprop_lab.training.threads import limit_threads

PATIENCE = 30.0  # seconds that tasks have for their last checkpoints


def run_on_ray(
    work: Sequence[JobT], *, jobs: int, threads: int, watch: Callable[[JobT, Any], None]
) -> None:
    """Carry out jobs as an `Engine` does, each as a Ray task with `threads` CPUs and its GPUs.

    Raises:
        ConfigurationError: if Ray cannot be imported.
    """
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise sb.ConfigurationError(
            f"--engine ray needs Ray, which cannot be imported: {error}. Install it with "
            "pip install 'selective-backprop[ray]', or leave the option out"
        ) from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)

    # Ray does not retry: repeat the command, and runs continue from their checkpoints.
    @ray.remote(num_returns="streaming", max_retries=0, num_cpus=threads)
    def carry_out(job: Job, folder: Path, paths: Sequence[str]) -> Generator[Any]:
        _enter(folder, paths, threads)
        yield from steps_and_error(job)

    pending = iter(work)
    running: dict[Any, JobT] = {}
    try:
        while True:
            for job in islice(pending, jobs - len(running)):
                task = carry_out.options(num_gpus=job.gpus)
                stream = task.remote(job, Path.cwd(), sys.path)
                running[stream] = job
            if not running:
                return
            ((stream,), _) = ray.wait(list(running), num_returns=1)
            job = running.pop(stream)
            try:
                step = ray.get(next(stream))
            except StopIteration:
                continue
            except ray.exceptions.RayError as error:
                raise killed([job]) from error
            running[stream] = job  # at the end, so that the steps of others come first next time
            if isinstance(step, Exception):
                raise step
            watch(job, step)
    except BaseException:
        for stream in running:
            ray.cancel(stream)  # raises KeyboardInterrupt in the task: the job saves and ends
        ends = [stream.completed() for stream in running]
        ray.wait(ends, num_returns=len(ends), timeout=PATIENCE) if ends else None
        raise


def _enter(folder: Path, paths: Sequence[str], threads: int) -> None:
    """Make a worker work as if it had been started in the command's folder."""
    os.chdir(folder)
    sys.path += [path for path in paths if path not in sys.path]  # for the user's modules
    limit_threads(threads)
