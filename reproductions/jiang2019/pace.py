"""How long runs take here, once some are on record."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from reproductions.jiang2019.needs import Need, Trained
from selective_backprop.lab.records.schema import Run, read_run

_SHORTEST = 5.0  # seconds: records know their times to the second


class Pace:
    """Estimates of seconds: from finished runs of the same net and data, else from measured passes.

    Args:
        met: needs that are on record.
        folder: of the records.
    """

    def __init__(self, met: Iterable[Need], folder: Path) -> None:
        found: dict[tuple[str, str, str], list[float]] = {}
        for need in met:
            if isinstance(need, Trained):
                elapsed = elapsed_of(read_run(need.file(folder)))
                if elapsed >= _SHORTEST:
                    found.setdefault(_kind(need), []).append(elapsed / need.work)
        self._paces = {kind: median(paces) for kind, paces in found.items()}

    def seconds(self, need: Need) -> float | None:
        """Return how long a need takes, or None where nothing is known of its kind."""
        if isinstance(need, Trained) and _kind(need) in self._paces:
            return self._paces[_kind(need)] * need.work
        return need.seconds

    def total(self, needs: Sequence[Need], *, jobs: int) -> float | None:
        """Return how long needs take, so many at a time; None where that of one is unknown."""
        times = [self.seconds(need) for need in needs]
        known = [time for time in times if time is not None]
        if len(known) < len(times):
            return None
        return max([sum(known) / jobs, *known])


def elapsed_of(run: Run) -> float:
    """Return the seconds that a finished run took, all sittings together.

    Records from before there were several know only when a run began and ended.
    """
    elapsed = (run.end or {}).get("elapsed")
    if isinstance(elapsed, int | float):
        return float(elapsed)
    ended = str((run.end or {}).get("ended", run.header.started))
    begun = datetime.fromisoformat(run.header.started)
    return (datetime.fromisoformat(ended) - begun).total_seconds()


def _kind(need: Trained) -> tuple[str, str, str]:
    return need.plan.recipe.model, need.data, need.plan.device
