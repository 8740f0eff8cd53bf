"""A run with its record and its checkpoints, which may take several sittings to finish."""

import errno
import time
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import selective_backprop as sb
from selective_backprop._core.errors import warn
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.nets.fingerprint import refuse_changed
from selective_backprop.lab.records.example_history import write_examples
from selective_backprop.lab.records.provenance import versions
from selective_backprop.lab.records.schema import Header, Point, record_path
from selective_backprop.lab.records.writer import RunWriter, is_finished
from selective_backprop.lab.training.checkpoint import Checkpoints
from selective_backprop.lab.training.run import TrainingRun
from selective_backprop.lab.training.run_config import RunConfig
from selective_backprop.lab.training.stopping import Stop

SECONDS = 30.0  # of training between two checkpoints, at least
SHARE = 0.01  # of a run's time that writing checkpoints takes, at most
_FULL = ("ENOSPC", "EDQUOT")


@dataclass(frozen=True)
class CheckpointPolicy:
    """Where a run is kept while it happens, and how often."""

    folder: Path  # of records and checkpoints
    # Seconds of training between two checkpoints; infinite for none. None is half a minute, or as
    # many more as keep the time that they take below a hundredth of the run's.
    every: float | None = None
    resume: bool = True  # whether a run goes on from its checkpoint, if there is one
    replace: bool = False  # whether a finished record of the same run may make room
    clock: Callable[[], float] = time.monotonic  # seconds, never going backwards


class ResumableRun:
    """A run that is recorded and kept while it happens, up to its end or an interruption.

    Raises:
        RecordError: if its checkpoint is of another run or version, or of a model that has
            changed, or its record cannot be written.
    """

    def __init__(
        self, run: TrainingRun, header: Header, identity: dict[str, Any], keeping: CheckpointPolicy
    ) -> None:
        self.run = run
        self._keeping, self._model_file = keeping, header.model_file
        path = record_path(keeping.folder, header)
        self.checkpoints = Checkpoints(path, identity)
        self._elapsed, self._sittings, self._took = 0.0, 1, 0.0
        # A finished record that lacks what a probe would have seen makes room as well.
        anew = not keeping.resume or keeping.replace or is_finished(path)
        kept = None if anew else self.checkpoints.load()
        with _told(path):
            if kept is None:
                # What begins anew must not go on, after a crash, from where another run stood.
                self.checkpoints.clear()
                room = keeping.replace or bool(run.plan.probes)
                self._writer = RunWriter.open(keeping.folder, header, replace=room)
            else:
                model, before = run.plan.recipe.model, kept["model_file"]
                refuse_changed(self.checkpoints.path, model, before, self._model_file)
                run.load_state_dict(kept["run"])
                self._elapsed, self._sittings = kept["elapsed"], kept["sittings"] + 1
                self._writer = RunWriter.go_on(keeping.folder, header, run.points, run.observations)
        self._saved = self._elapsed
        self._since: float | None = None  # at rest

    def advance(self, stop: Stop) -> Point | None:
        """Train until the next evaluation, and record it; None where the run was stopped."""
        self._since = self._keeping.clock()
        point = self.run.advance(lambda: self._pause(stop))
        if point is not None:
            with _told(self._writer.path):
                self._record(point)
        self._elapse()
        self._since = None
        return point

    def _record(self, point: Point) -> None:
        self._writer.point(point)
        for observation in self.run.look():
            self._writer.observation(observation)
        self._elapse()
        if self.run.finished:
            meters = self.run.meters()
            history = self.run.history()
            if history is not None:
                write_examples(history, self._writer.path)
            self._writer.end(meters, elapsed=self._elapsed, sittings=self._sittings)
            self.checkpoints.clear()

    def save(self) -> None:
        """Write a checkpoint, if anything was trained; a warning says so where that fails."""
        if not self.run.begun:
            return
        began = self._keeping.clock()
        with self.run.meter.paused():
            self._elapse()
            state = {
                "run": self.run.state_dict(),
                "elapsed": self._elapsed,
                "sittings": self._sittings,
                "model_file": self._model_file,
            }
            try:
                self.checkpoints.save(state)
            except sb.RecordError as error:
                warn(f"{error}. The run goes on, and its last checkpoint is the one before")
        self._took, self._saved = self._keeping.clock() - began, self._elapsed
        if self._since is not None:
            self._since = self._keeping.clock()  # saving is no time of the run's

    def close(self) -> None:
        """Stop recording."""
        self._writer.close()

    def _pause(self, stop: Stop) -> bool:
        self._elapse()
        every, often = self._keeping.every, max(SECONDS, self._took / SHARE)
        if self._elapsed - self._saved >= (often if every is None else every):
            self.save()
        return stop.asked

    def _elapse(self) -> None:
        if self._since is not None:
            now = self._keeping.clock()
            self._elapsed, self._since = self._elapsed + now - self._since, now


def identity_of(plan: RunConfig, data: ImageData) -> dict[str, Any]:
    """Return what a checkpoint must be of to go on with a plan, in plain words and numbers."""
    found = versions()
    return {
        "run": plan.identity(),
        "data": {
            "examples": len(data.train_labels),
            "shape": list(data.train_images.shape[1:]),
            "labels": zlib.crc32(data.train_labels.cpu().numpy().tobytes()),
        },
        "probes": [probe.words for probe in plan.probes],
        "versions": {name: found[name] for name in ("torch", "selective_backprop")},
    }


@contextmanager
def _told(path: Path) -> Generator[None]:
    """Say which file could not be written, and what that costs."""
    try:
        yield
    except OSError as error:
        full = errno.errorcode.get(error.errno or 0) in _FULL
        advice = "make room" if full else "see to that, or name another folder"
        raise sb.RecordError(
            f"{path} cannot be written: {error.strerror or error}. What was recorded before is "
            f"kept; {advice}, and run the same again."
        ) from error
