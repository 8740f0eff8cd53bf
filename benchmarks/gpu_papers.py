"""Train what a scale of `reproduce` needs for as long as there is time, and go on the next time.

    PYTHONPATH=src python benchmarks/gpu_papers.py --root ~/data --out runs/gpu
    PYTHONPATH=src python benchmarks/gpu_papers.py --scale cifar10 --device cpu --seconds 30 \
        --root ~/data --out x                       the same in small, to see that it works

Runs that are finished stay on record; the others begin anew. Nothing is drawn: that needs no GPU,
and is done wherever the records are by

    selective-backprop reproduce all --scale gpu --device cuda --no-train --out runs/gpu
"""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType

import torch

from reproductions.jiang2019.meeting import meet_all
from reproductions.jiang2019.needs import Need, TensorSlot, missing_data, needs_of
from reproductions.jiang2019.registry import items_at
from reproductions.jiang2019.scales import SCALES, ScaleName
from selective_backprop.lab.training.threads import limit_threads


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
    place = TensorSlot(
        options.out / "runs" / scale.name,
        options.root,
        shlex.join(["python", "benchmarks/gpu_papers.py", *sys.argv[1:]]),
    )
    place.folder.mkdir(parents=True, exist_ok=True)
    items = items_at(scale)
    every = needs_of(items, scale, seeds=options.seeds, device=options.device)
    for why in missing_data(every, options.root).values():
        parser.error(why)
    waiting = [need for need in every if not need.is_met(place.folder)]
    print(f"{len(every)} runs and measurements, {len(waiting)} to do", flush=True)
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, options.seconds)
    try:
        if waiting:
            meet_all(waiting, place, jobs=options.jobs, threads=1, watch=_tell)
    except OutOfTime:
        print(f"{options.seconds:g} s are over", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    left = sum(not need.is_met(place.folder) for need in every)
    print(f"{left} of {len(every)} to do", flush=True)
    return int(left > 0)


def _end(number: int, frame: FrameType | None) -> None:
    raise OutOfTime


def _tell(need: Need, words: str | None) -> None:
    if words is None:
        where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        print(f"{need.words}: done on {where}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
