"""Kill runs of the lab at random moments, let them go on, and hold them against uninterrupted ones.

    python benchmarks/kill.py --out records/bench/kill.json

Each strategy is trained once without interruption, and once in processes that are killed (SIGKILL)
at random moments and started again until one comes to the end. Compared bit for bit are the
weights, what the loader remembers (ledger and history among it), the curve and the counters; not
seconds. One CPU thread.
"""

import argparse
import random
import signal
import sys
import time
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from recording import write_record
from rich.console import Console
from torch import Tensor

from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data import datasets
from selective_backprop_lab.recipe import find_recipe
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.resumable_run import SECONDS, SHARE, ResumableRun
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig
from selective_backprop_lab.training.stopping import Stop

ARMS = ("traditional", "selective-backprop", "stale-sb", "recorded-sb", "infobatch")
EPOCHS = 8
EVERY = 0.25  # seconds between two checkpoints, so that kills often meet one being written
TIMES = {"seconds", "cpu_seconds", "phases"}


def main() -> int:
    """Kill, compare, write a record; return 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="in all, shared out evenly")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console, moments, found = Console(width=100), random.Random(options.seed), []
    for place, arm in enumerate(ARMS):
        kills = len(range(place, options.kills, len(ARMS)))
        with TemporaryDirectory() as folder:
            found.append(judge(arm, kills, Path(folder), moments))
        console.print(", ".join(f"{name}: {value}" for name, value in found[-1].items()))
    if options.out:
        write(options.out, found)
    return int(not all(all(each["equal"].values()) for each in found))


def plan_of(arm: str) -> RunConfig:
    """Return what is trained."""
    length = Budget("epochs", EPOCHS)
    return RunConfig(
        find_recipe("digits"), arm, StrategyOptions(warmup=1 / EPOCHS), 0, length, evaluations=6
    )


def train(arm: str, folder: Path, every: float, line: Connection) -> None:
    """Train or go on, and leave beside the record what the run came to."""
    plan = plan_of(arm)
    data = datasets.load(plan.recipe.data, root=None, limit=plan.limit)
    run = TrainingRun(plan, data)
    session = ResumableRun(run, folder, command="benchmarks/kill.py", every=every)
    line.send(run.meter.updates)
    stop = Stop()
    while not run.finished:
        session.advance(stop)
    state = {"weights": run.model.state_dict(), "remembered": run.loader.state_dict()["parts"]}
    torch.save({**state, "counters": run.meters()}, folder / "outcome.pt")


def start(arm: str, folder: Path, every: float) -> tuple[BaseProcess, int]:
    """Start a process, and return it with the updates that it goes on from."""
    context = get_context("fork")  # which need not import torch each time
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=train, args=(arm, folder, every, theirs))
    child.start()
    theirs.close()
    return child, ours.recv()


def judge(arm: str, kills: int, folder: Path, moments: random.Random) -> dict[str, Any]:
    """Train with kills and without, and say what was equal."""
    child, _ = start(arm, folder / "whole", float("inf"))
    began = time.monotonic()
    child.join()
    whole = time.monotonic() - began
    went_on_from, killed = [], 0
    while not (folder / "killed" / "outcome.pt").exists():
        child, updates = start(arm, folder / "killed", EVERY)
        went_on_from.append(updates)
        left = None if killed == kills else moments.uniform(0.0, 1.5 * whole / (kills + 1))
        child.join(left)
        if child.exitcode is None:
            child.kill()
            child.join()
            killed += child.exitcode == -signal.SIGKILL
    one, other = (outcome(folder / name) for name in ("whole", "killed"))
    return {
        "arm": arm,
        "kills": killed,
        "updates": one["updates"],
        "went_on_from": went_on_from,
        "equal": {name: one[name] == other[name] for name in one if name != "updates"},
    }


def outcome(folder: Path) -> dict[str, Any]:
    """Return what a run came to, as something that can be compared."""
    found = torch.load(folder / "outcome.pt", weights_only=True)
    (run,) = read_runs(folder)
    assert run.finished
    curve = [
        {name: repr(value) for name, value in vars(point).items() if name not in TIMES}
        for point in run.points
    ]
    counters = found["counters"] | {"peak_memory_bytes": 0}
    return {
        "weights": bits(found["weights"]),
        "ledger": bits(found["remembered"]),
        "curve": curve,
        "counters": counters,
        "updates": run.points[-1].updates,
    }


def bits(state: Any) -> Any:
    """Return a state to the last bit, as something that can be compared."""
    if isinstance(state, Tensor):
        return str(state.dtype), tuple(state.shape), state.numpy().tobytes()
    if isinstance(state, dict):
        return {key: bits(value) for key, value in state.items()}
    return repr(state)


def price(model: str) -> dict[str, Any]:
    """Return what a checkpoint of a run takes, and which share of the time that is by default."""
    plan = plan_of("selective-backprop")
    plan = replace(plan, recipe=replace(plan.recipe, model=model))
    data = datasets.load(plan.recipe.data, root=None, limit=None)
    run = TrainingRun(plan, data)
    with TemporaryDirectory() as folder:
        session = ResumableRun(run, Path(folder), command="benchmarks/kill.py")
        run.advance(lambda: run.meter.updates >= 3)
        seconds = []
        for _ in range(7):
            began = time.monotonic()
            session.save()
            seconds.append(time.monotonic() - began)
        session.close()
        size = session.checkpoints.path.stat().st_size
    took = sorted(seconds)[3]
    return {
        "model": model,
        "parameters": sum(each.numel() for each in run.model.parameters()),
        "bytes": size,
        "seconds": took,
        "share_by_default": took / (took + max(SECONDS, took / SHARE)),
    }


def write(file: Path, found: list[dict[str, Any]]) -> None:
    """Write a record."""
    write_record(
        file,
        data=f"digits, {EPOCHS} epochs, small_cnn, one thread",
        every=EVERY,
        kills=sum(each["kills"] for each in found),
        runs=found,
        checkpoints=[price(model) for model in ("small_cnn", "resnet9", "resnet18")],
    )


if __name__ == "__main__":
    sys.exit(main())
