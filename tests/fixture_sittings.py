"""Sittings of runs so small that they take a moment."""

from pathlib import Path
from typing import Any

from selective_backprop.lab.datasets import ImageData
from selective_backprop.lab.plans import Plan
from selective_backprop.lab.records import Header
from selective_backprop.lab.runs import TrainingRun
from selective_backprop.lab.sittings import Keeping, Sitting, identity_of
from selective_backprop.lab.stopping import Stop


class StopAfter(Stop):
    """A wish to stop that comes up when so many updates are done."""

    def __init__(self, run: TrainingRun, updates: int | None) -> None:
        super().__init__()
        self.run, self.updates = run, updates

    @property
    def asked(self) -> bool:
        return self.updates is not None and self.run.meter.updates >= self.updates


def open_sitting(
    plan: Plan, data: ImageData, folder: Path, *, run: TrainingRun | None = None, **keeping: Any
) -> Sitting:
    header = Header.here(plan.config(), arm=plan.arm, seed=plan.seed, command="typed")
    run = TrainingRun(plan, data) if run is None else run
    return Sitting(run, header, identity_of(plan, data), Keeping(folder, **keeping))


def sit(
    plan: Plan,
    data: ImageData,
    folder: Path,
    *,
    run: TrainingRun | None = None,
    updates: int | None = None,
    **keeping: Any,
) -> TrainingRun:
    """Sit through a run, or until so many of its updates are done, and return it."""
    sitting = open_sitting(plan, data, folder, run=run, **keeping)
    stop = StopAfter(sitting.run, updates)
    try:
        while not sitting.run.finished and not stop.asked:
            sitting.advance(stop)
        if stop.asked:
            sitting.save()
    finally:
        sitting.close()
    return sitting.run
