"""Train what a scale of `scripts/reproduce` needs while there is time, and go on the next time.

    PYTHONPATH=src:. python benchmarks/gpu_papers.py --root ~/data --out runs/gpu
    PYTHONPATH=src:. python benchmarks/gpu_papers.py --scale cifar10 --device cpu --seconds 30 \
        --root ~/data --out x                       the same in small, to see that it works

Runs that are finished stay on record; the others begin anew. Nothing is drawn: that needs no GPU,
and is done wherever the records are by

    scripts/reproduce all --scale gpu --device cuda --no-train --out runs/gpu
"""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType

import torch

from reproductions.jiang2019.scales import SCALES, ScaleName
from reproductions.papers import PaperOrder, figures_at
from reproductions.training import absent_data, is_done, name_of, train
from selective_backprop_lab.records.schema import Point
from selective_backprop_lab.training.run_config import RunConfig
from selective_backprop_lab.training.threads import limit_threads


class OutOfTime(Exception):
    """The seconds that were given are over."""


def main() -> int:
    """Train until nothing is missing or the time is up; return 1 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=ScaleName, default=ScaleName.GPU, help="of reproduce")
    parser.add_argument("--root", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder, as of reproduce")
    parser.add_argument("--device", default="cuda", help="where to train")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--seconds", type=float, default=560.0, help="after which to end")
    options = parser.parse_args()
    limit_threads(1)
    scale = SCALES[options.scale]
    order = PaperOrder(
        scale=scale,
        seeds=options.seeds,
        device=options.device,
        threads=1,
        jobs=options.jobs,
        root=options.root,
        out=options.out,
        command=shlex.join(["python", "benchmarks/gpu_papers.py", *sys.argv[1:]]),
    )
    folder = order.folder
    folder.mkdir(parents=True, exist_ok=True)
    every = order.jobs_of(figures_at(scale))
    for why in absent_data(every, options.root).values():
        parser.error(why)
    waiting = [job for job in every if not is_done(job, folder)]
    print(f"{len(every)} runs and measurements, {len(waiting)} to do", flush=True)
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, options.seconds)
    try:
        if waiting:
            train(waiting, order.store(folder), jobs=options.jobs, threads=1, watch=_tell)
    except OutOfTime:
        print(f"{options.seconds:g} s are over", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    left = sum(not is_done(job, folder) for job in every)
    print(f"{left} of {len(every)} to do", flush=True)
    return int(left > 0)


def _end(number: int, frame: FrameType | None) -> None:
    raise OutOfTime


def _tell(plan: RunConfig, point: Point | None) -> None:
    if point is not None and point.progress == 1.0:
        where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        print(f"{name_of(plan)}: done on {where}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
