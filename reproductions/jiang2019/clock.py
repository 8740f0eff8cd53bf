"""What the papers' seconds are here: wall seconds of a GPU, CPU seconds of runs on a CPU."""

from collections.abc import Sequence

from selective_backprop.lab.analysis.statistics import Axis
from selective_backprop.lab.records.schema import Point, Run


def clock(runs: Sequence[Run]) -> Axis:
    """Return the axis that runs are timed on.

    Runs on a CPU share its cores with whatever else the machine does, and wall seconds tell that
    too; a process's own CPU time hardly does.
    """
    on_cpu = any(run.header.device == "cpu" for run in runs)
    return "cpu_seconds" if on_cpu else "seconds"


def timed(axes: Sequence[Axis], runs: Sequence[Run]) -> tuple[Axis, ...]:
    """Return axes with the runs' own clock in the place of wall seconds."""
    return tuple(clock(runs) if axis == "seconds" else axis for axis in axes)


def seconds_of_phases(run: Run, point: Point) -> dict[str, float]:
    """Return the seconds of each phase up to an evaluation, on the run's clock.

    Phases are metered in wall seconds; CPU seconds are split in their proportion.
    """
    share = 1.0
    if clock([run]) == "cpu_seconds" and point.seconds:
        share = point.cpu_seconds / point.seconds
    return {phase: share * seconds for phase, seconds in point.phases.items()}
