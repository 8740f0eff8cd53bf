"""Records of runs: plain files that survive a crash at any moment, and all that is ever drawn.

One run is one file of JSON lines, `<arm>-seed<k>-<key>.jsonl`, where the key is a short hash of the
arm and its configuration:

    {"kind": "run", "schema": 1, "arm": …, "seed": …, "config": {…}, …}     what runs, written first
    {"kind": "point", "progress": 0.1, "test_error": 12.5, …}               one per evaluation
    {"kind": "observation", "probe": …, "seen": {…}, …}                     what a probe saw then
    {"kind": "end", "status": "finished", "meters": {…}, …}                 only if it got there

The first line appears together with the file, whole or not at all; each later line is appended and
forced to the disk before the writer returns. A crash can therefore only cost the line being
written, and a record without its last line is a run that did not finish.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import selective_backprop as sb
from selective_backprop.lab.records.lines import decode, encode
from selective_backprop.lab.records.provenance import code_version, hardware, versions

SCHEMA = 1
SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True)
class Point:
    """What is known of a run at one evaluation; every counter counts from the run's start.

    A counter that a record lacks, since it is older than the counter, is 0.
    """

    progress: float  # share of the run's own length, 0 to 1
    epoch: float
    cost: float  # in passes of traditional training: scoring 1, training 3, per example
    seconds: float  # of wall time, evaluation left out
    cpu_seconds: float  # of this process, evaluation left out
    updates: int = 0
    candidates: int = 0
    loaded: int = 0
    scored: int = 0  # forwards for scoring, in examples
    trained: int = 0  # forwards and backwards for training, in examples
    test_error: float  # percent
    test_loss: float
    train_loss: float  # mean over the training batches since the last point
    rate: float  # share of the candidates since the last point that was trained on
    phases: Mapping[str, float]  # seconds: load, score, select, forward, backward, step, other

    @property
    def forwards(self) -> int:
        """Forward passes so far, in examples: for scoring and for training."""
        return self.scored + self.trained


@dataclass(frozen=True, kw_only=True)
class Header:
    """What runs: the first line of a record."""

    config: Mapping[str, Any]
    arm: str
    seed: int
    code_version: str
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    command: str
    started: str  # ISO 8601, UTC
    model_file: str | None = None  # fingerprint of the file that a model of the user's is made in

    @classmethod
    def here(
        cls,
        config: Mapping[str, Any],
        *,
        arm: str,
        seed: int,
        command: str,
        model_file: str | None = None,
    ) -> "Header":
        """Describe a run that starts now, on this machine, with this code."""
        return cls(
            config=config,
            arm=arm,
            seed=seed,
            code_version=code_version(),
            versions=versions(),
            hardware=hardware(),
            command=command,
            started=utc_now(),
            model_file=model_file,
        )


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a probe saw at one moment of a run."""

    probe: str  # in its own words
    progress: float  # share of the run, 0 to 1
    seen: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One record, as read."""

    header: Header
    points: tuple[Point, ...]
    observations: tuple[Observation, ...] = ()
    end: Mapping[str, Any] | None = None
    path: Path | None = None

    @property
    def finished(self) -> bool:
        """Whether the run came to its own end, as against a crash or an interruption."""
        return self.end is not None and self.end.get("status") == "finished"

    @property
    def name(self) -> str:
        """What messages call this run: its file, or its arm and seed where it has none."""
        return self.path.name if self.path else f"{self.header.arm}, seed {self.header.seed}"


def record_path(folder: Path, header: Header) -> Path:
    """Return the file in which a run is recorded: same arm, seed and configuration, same file."""
    return Path(folder) / record_name(header.config, arm=header.arm, seed=header.seed)


def record_name(config: Mapping[str, Any], *, arm: str, seed: int) -> str:
    """Return the name of that file."""
    identity = encode({"arm": arm, "config": config}, sort=True)
    key = hashlib.sha256(identity).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", arm)[:60]
    return f"{name}-seed{seed}-{key}{SUFFIX}"


def read_run(path: str | Path) -> Run:
    """Read one record, up to its last whole line.

    Raises:
        RecordError: if the file cannot be read, does not begin with a header of this schema, or
            holds a line (other than a last one, cut off) that is not what it should be.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise sb.RecordError(f"{path}: cannot be read ({error.strerror}).") from error
    # What follows the last line break was being written when the run died.
    lines = content.split(b"\n")[:-1]
    if not lines:
        raise sb.RecordError(f"{path}: no header; a record's first line says what ran.")
    header = _read_header(_parse(lines[0], f"{path}, line 1"), f"{path}, line 1")
    points: list[Point] = []
    observations: list[Observation] = []
    end = None
    for number, line in enumerate(lines[1:], start=2):
        where = f"{path}, line {number}"
        entry = _parse(line, where)
        if end is not None:
            raise sb.RecordError(f"{where}: something follows the end of the run.")
        if entry.get("kind") == "point":
            points.append(read_point(entry, where))
        elif entry.get("kind") == "observation":
            observations.append(read_observation(entry, where))
        elif entry.get("kind") == "end":
            end = {key: value for key, value in entry.items() if key != "kind"}
        else:
            raise sb.RecordError(
                f"{where}: kind is {entry.get('kind')!r}, expected 'point', 'observation' or 'end'."
            )
    return Run(
        header=header,
        points=tuple(points),
        observations=tuple(observations),
        end=end,
        path=path,
    )


def read_runs(folder: str | Path) -> list[Run]:
    """Read every record in a folder, in order of file name; what was set aside is left out.

    Raises:
        RecordError: if the folder is missing, or as `read_run` does.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise sb.RecordError(f"{folder}: no such folder of records.")
    return [read_run(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def utc_now() -> str:
    """Return the time as records write it: ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        return decode(line)
    except ValueError as error:
        raise sb.RecordError(
            f"{where}: not a line of a record ({error}). Only a record's last line may be cut off; "
            "this file was changed after it was written."
        ) from error


def _read_header(entry: dict[str, Any], where: str) -> Header:
    if entry.get("kind") != "run":
        raise sb.RecordError(
            f"{where}: kind is {entry.get('kind')!r}, expected 'run': a record's first line says "
            "what ran."
        )
    if entry.get("schema") != SCHEMA:
        raise sb.RecordError(
            f"{where}: schema {entry.get('schema')!r}, this version reads schema {SCHEMA}. Read it "
            "with the version that wrote it."
        )
    kinds = {"config": dict, "versions": dict, "hardware": dict, "seed": int}
    for field in fields(Header):
        kind = kinds.get(field.name, str)
        if field.default is None and entry.get(field.name) is None:
            continue  # as in most records, and all of older code
        if not isinstance(entry.get(field.name), kind):
            raise sb.RecordError(
                f"{where}: {field.name} is {entry.get(field.name)!r}, expected {kind.__name__}."
            )
    values: dict[str, Any] = {field.name: entry.get(field.name) for field in fields(Header)}
    return Header(**values)


def read_point(entry: Mapping[str, Any], where: str) -> Point:
    """Return a point from its values by name.

    Args:
        entry: the values; others beside them are left out.
        where: they stand, for messages.

    Raises:
        RecordError: if a value is missing that has no default, or is none that a point can hold.
    """
    values: dict[str, Any] = {}
    for field in fields(Point):
        if field.name not in entry and field.default is not MISSING:
            continue
        value: Any = entry.get(field.name)
        if field.name == "phases":
            fits = isinstance(value, dict) and all(_is_number(part) for part in value.values())
        else:
            fits = _is_number(value) and (field.type is float or isinstance(value, int))
        if not fits:
            raise sb.RecordError(f"{where}: {field.name} is {value!r}, which no point can hold.")
        values[field.name] = float(value) if field.type is float else value
    return Point(**values)


def read_observation(entry: Mapping[str, Any], where: str) -> Observation:
    """Return an observation from its values by name.

    Raises:
        RecordError: if one of them is missing or of another kind.
    """
    probe, seen = entry.get("probe"), entry.get("seen")
    progress: Any = entry.get("progress")
    if not (isinstance(probe, str) and _is_number(progress) and isinstance(seen, dict)):
        raise sb.RecordError(
            f"{where}: probe {probe!r}, progress {progress!r}, seen {seen!r:.40}; an observation "
            "has a text, a number and a mapping."
        )
    return Observation(probe=probe, progress=float(progress), seen=seen)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**63  # larger ones are no counter and no float
