"""A run with its record and its checkpoints, which may take several sessions to finish."""

import io
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.records.example_history import write_examples
from selective_backprop_lab.records.files import is_locked, locked, replacing, told
from selective_backprop_lab.records.lines import decode, encode, flat, printable
from selective_backprop_lab.records.provenance import hardware, machine_of, versions
from selective_backprop_lab.records.schema import Header, Point, record_path
from selective_backprop_lab.records.writer import RunWriter, TakenError, is_finished
from selective_backprop_lab.training.process import Stop
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig

SECONDS = 30.0  # least seconds of training between two checkpoints
FORMAT = 9  # version of the format of checkpoints
SUFFIX = ".checkpoint"
SHARE = 0.01  # largest share of a run's time that writing checkpoints may take


class ResumableRun:
    """A run that is recorded while it happens, and saved in checkpoints.

    `every` is the seconds of training between two checkpoints; None for 30, or more if writing them
    would take over 1 % of the time. `run` must be before its first update. If it is recorded
    already, or another process records it, this raises `TakenError`.
    """

    def __init__(
        self,
        run: TrainingRun,
        folder: Path,
        *,
        command: str = "",
        every: float | None = None,
        resume: bool = True,
        replace: bool = False,
        shared_gpu: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run, self._every, self._clock = run, every, clock
        self._watch = sb.Stopwatch(clock=clock)
        header = run.config.header(command)
        path = record_path(folder, header)
        self.checkpoints = Checkpoints(path, identity_of(run.config, run.data))
        # Of each time that the run was begun or continued.
        self._machines, self._shared_gpu = [machine_of(hardware())], shared_gpu
        with told(path):
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder):  # two processes may begin the same run
                self._writer = self._begin(path, header, resume=resume, replace=replace)
        self._saved, self._took = self._watch.total, 0.0  # when it was saved, and how long it took

    def _begin(self, path: Path, header: Header, *, resume: bool, replace: bool) -> RunWriter:
        if is_locked(path):
            raise TakenError(f"another process is recording {path}")
        # A finished record that lacks a probe's observations is replaced, too.
        anew = not resume or replace or is_finished(path)
        found = None if anew else self.checkpoints.load()
        if found is None:
            # After a crash, this new run must not continue from an old checkpoint.
            self.checkpoints.clear()
            replace = replace or bool(self.run.config.probes)
            return RunWriter.open(path.parent, header, replace=replace)
        self._go_on(*found)
        return RunWriter.go_on(path.parent, header, self.run.points, self.run.observations)

    def _go_on(self, checkpoint: Path, state: dict[str, Any]) -> None:
        try:
            self.run.load_state_dict(state["run"])
            self._watch.go_on({"other": state["elapsed"]})
            self._machines = [*state["machines"], *self._machines]
            self._shared_gpu |= state["shared_gpu"]
        except Exception as error:  # torch may raise anything if the state is of something else
            raise sb.RecordError(
                f"{checkpoint} does not fit this run of the model {self.run.config.recipe.model!r} "
                f"({type(error).__name__}: {error}). Make the same model as before, or move that "
                "file and the one before it away to start again."
            ) from error

    def advance(self, stop: Stop) -> Point | None:
        """Train until the next evaluation, and record it; return None if the run was stopped."""
        self._watch.start()
        point = self.run.advance(lambda: self._pause(stop))
        if point is not None:
            with told(self._writer.path):
                self._record(point)
        self._watch.stop()
        return point

    def _record(self, point: Point) -> None:
        for entry in (point, *self.run.look()):
            self._writer.add(entry)
        if self.run.finished:
            meters, history = self.run.meters(), self.run.history()
            if history is not None:
                write_examples(history, self._writer.path)
            self._writer.end(meters, **self._so_far)
            self.checkpoints.clear()

    def save(self) -> None:
        """Write a checkpoint, if anything was trained; warn if it cannot be written."""
        if not self.run.meter.updates:
            return
        began = self._clock()
        with self.run.meter.paused():
            try:
                self.checkpoints.save({"run": self.run.state_dict(), **self._so_far})
            except OSError as error:
                _warn(
                    f"{self.checkpoints.path} cannot be written: {error.strerror or error}. The "
                    "run goes on, and the checkpoint before this one is kept"
                )
        self._took, self._saved = self._clock() - began, self._watch.total

    @property
    def _so_far(self) -> dict[str, Any]:
        known = {"machines": self._machines, "shared_gpu": self._shared_gpu}
        return {"elapsed": self._watch.total, **known}

    def close(self) -> None:
        """Stop recording."""
        self._writer.close()

    def _pause(self, stop: Stop) -> bool:
        every = max(SECONDS, self._took / SHARE) if self._every is None else self._every
        if self._watch.total - self._saved >= every:
            self._watch.stop()  # saving does not count as time of the run
            self.save()
            self._watch.start()
        return stop.asked is not None


def identity_of(config: RunConfig, data: LabData) -> dict[str, Any]:
    """Return what must be the same in a run and in its checkpoint, in plain words and numbers."""
    found = versions()
    return {
        "run": config.identity(),
        "data": {
            "examples": len(data.train_labels),
            "shape": list(data.train_inputs.shape[1:]),
            "labels": zlib.crc32(data.train_labels.cpu().numpy().tobytes()),
        },
        "probes": [repr(probe) for probe in config.probes],
        "versions": {name: found[name] for name in ("torch", "selective_backprop")},
    }


class Checkpoints:
    """The last two checkpoints of one run, beside its record; `identity` must be the same."""

    def __init__(self, record: Path, identity: Mapping[str, Any]) -> None:
        self.path = record.with_suffix(SUFFIX)
        self.before = record.with_suffix(SUFFIX + ".before")  # the one before the last
        # Encoded and decoded, because enumerations and tuples become plain values in a file.
        self._identity = decode(encode({"format": FORMAT, **identity}))

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint. If this fails at any moment, the last whole checkpoint is kept."""
        content = io.BytesIO()  # torch would hide why it cannot write to a file
        torch.save({"identity": self._identity, "state": dict(state)}, content)
        with replacing(self.path, before=self.before) as file:
            file.write(content.getbuffer())

    def load(self) -> tuple[Path, dict[str, Any]] | None:
        """Return the path and the state of the last whole checkpoint; None if there is none."""
        for path, otherwise in (
            (self.path, "the one before it is used, if there is one"),
            (self.before, "the run starts again"),
        ):
            if not path.is_file():
                continue
            try:
                identity, state = _read(path)
            except Exception as error:  # damaged bytes may make the reader raise anything
                _warn(
                    f"{path} is damaged, or holds something else than tensors, numbers and text "
                    f"({error}), so it is not loaded; {otherwise}"
                )
            else:
                self._check(path, identity)
                return path, state
        return None

    def clear(self) -> None:
        """Delete both checkpoints, because the run is over."""
        for path in (self.path, self.before):
            path.unlink(missing_ok=True)

    def _check(self, path: Path, found: Mapping[str, Any]) -> None:
        here, there = flat(self._identity), flat(found)
        for name in dict.fromkeys([*here, *there]):
            if here.get(name) != there.get(name):
                raise sb.RecordError(
                    f"{path} is of another run: {name} is {there.get(name)!r} there and "
                    f"{here.get(name)!r} here. Continue with the value of that file, or move that "
                    "file and the one before it away to start again."
                )


def _warn(message: str) -> None:
    warnings.warn(printable(message), sb.SelectionWarning, stacklevel=3)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with zipfile.ZipFile(path) as file:  # torch itself does not verify the checksums
        damaged = file.testzip()
    if damaged:
        raise ValueError(f"the checksum of {damaged} does not fit")
    found = torch.load(path, map_location="cpu", weights_only=True)
    return dict(found["identity"]), dict(found["state"])
