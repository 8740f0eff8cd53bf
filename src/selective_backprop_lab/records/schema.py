"""Records of runs: lines of JSON that survive a crash at any moment.

A run has one record, named `<strategy>-seed<k>-<key>.jsonl`, where the key is a short hash of the
run's identity. A folder keeps records as files, as one compressed pack (see `lines.py`), or both:

    {"kind": "run", "schema": 2, "identity": {…}, "config": {…}, …}         what runs, written first
    {"kind": "point", "progress": 0.1, "test_error": 12.5, …}               one per evaluation
    {"kind": "observation", "probe": …, "seen": {…}, …}                     what a probe saw then
    {"kind": "end", "status": "finished", "meters": {…}, …}                 if the run finished

The first line appears together with the file, whole or not at all. Each later line is on the disk
before the writer returns. So a crash costs at most the line being written.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import selective_backprop as sb
from selective_backprop_lab.records.files import locked, told
from selective_backprop_lab.records.lines import (
    IDENTITY,
    PACK,
    SUFFIX,
    decode,
    pack,
    packed,
    printable,
    read_fields,
    read_value,
    record_name,
)

SCHEMA = 2


@dataclass(frozen=True, kw_only=True)
class Point:
    """The state of a run at one evaluation; all counters count from the run's start."""

    progress: float  # fraction of the run's own length, 0 to 1
    epoch: float
    cost: float  # in passes of traditional training; scoring costs a third of training
    seconds: float  # wall seconds, without evaluation
    cpu_seconds: float  # CPU seconds of this process, without evaluation
    updates: int
    candidates: int
    loaded: int
    scored: int  # forward passes for scoring, in examples
    trained: int  # forward and backward passes for training, in examples
    test_error: float  # percent
    test_loss: float
    train_loss: float  # mean over the training batches since the last point
    rate: float  # share of the candidates since the last point that was trained on
    phases: Mapping[str, float]  # seconds: load, score, select, forward, backward, step, other
    overhead: float | None = None  # wall seconds of setting up and evaluations; None if unrecorded
    class_errors: tuple[float, ...] | None = None  # percent, by label; NaN without test examples
    ranking: float | None = None  # area under the curve, 0 to 1, if there are two classes
    rare_precision: float | None = None  # average precision, 0 to 1, of the rarest class
    corrected_loss: float | None = None  # `test_loss`, for how often each class was trained on

    @property
    def forwards(self) -> int:
        """Forward passes so far, in examples, for scoring and for training."""
        return self.scored + self.trained


# The types of what is read of a header and of a record's last line.
_READ: dict[str, Any] = {
    "config": {
        **dict.fromkeys(("data", "model", "pretrained", "budget_unit", "schedules_follow"), str),
        **{"epochs": float, "budget": float, "limit": int | None, "noise": float | None},
        "composition": {
            **dict.fromkeys(("skew", "frequent", "copies"), float),
            **{"near_copies": int, "places": int | None, "noise_kind": str, "seed": int},
        },
        "recipe": {"learning_rate": float},
    },
    "hardware": {
        **{"cpu": str, "capability": str, "cores": int, "threads": int},
        **{"memory_gib": float | None, "gpu": str | None, "system": str},
    },
    "end": {
        **{"status": str, "ended": str, "elapsed": float},  # ended: ISO 8601, UTC; seconds
        "machines": list[str],  # in words, one for each time that the run was begun or continued
        "shared_gpu": bool,  # whether another run of the same command used its GPU meanwhile
        "meters": {
            "class_shares": list[float],  # of the training data, by label; missing for text
            **{"prepared_cost": float, "test_examples": int, "train_error": float},
            # The share of labels that looked wrong (`SelectiveLoader.wrong_labels`); 0 if unclear.
            "wrong_labels": float | None,
        },
    },
}


@dataclass(frozen=True, kw_only=True)
class Header:
    """What runs, and where: the first line of a record."""

    identity: Mapping[str, Any]  # the choices that distinguish this run
    config: Mapping[str, Any]  # the whole configuration, with defaults
    device: str
    code_version: str
    versions: Mapping[str, str]
    hardware: Mapping[str, Any]
    command: str
    started: str  # ISO 8601, UTC
    model_file: str | None = None  # fingerprint of the file that makes a user's own model
    data_file: str | None = None  # fingerprint of the file that reads a user's own data
    strategy_file: str | None = None  # fingerprint of the file of a user's own strategy

    @property
    def arm(self) -> str:
        """The strategy's name."""
        return self.identity["strategy"]["name"]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.identity["seed"]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a probe saw at one moment of a run."""

    probe: str  # name of the probe
    progress: float  # fraction of the run, 0 to 1
    seen: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One record, as read."""

    header: Header
    points: tuple[Point, ...]
    observations: tuple[Observation, ...] = ()
    end: Mapping[str, Any] | None = None
    path: Path

    @property
    def finished(self) -> bool:
        """Whether the run reached its end, without a crash or an interruption."""
        return self.end is not None and self.end.get("status") == "finished"

    @property
    def meters(self) -> Mapping[str, Any]:
        """The counts over the whole run; empty for an unfinished run."""
        return (self.end or {}).get("meters", {})


def record_path(folder: str | Path, header: Header) -> Path:
    """Return the path of a run's record; the same identity gives the same path."""
    return Path(folder) / record_name(header.identity)


def read_run(path: str | Path) -> Run:
    """Read one record, up to its last whole line, from its file or from the pack beside it."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        content = packed(path.parent).get(path.name)
        if content is None:
            raise sb.RecordError(f"{path}: there is no such record.") from error
    except OSError as error:
        raise sb.RecordError(f"{path}: cannot be read ({error.strerror}).") from error
    return _run(path, content)


def _run(path: Path, content: bytes) -> Run:
    if (shown := printable(path.name)) != path.name:
        raise sb.RecordError(
            f"{path.with_name(shown)}: its name holds control characters; rename the file."
        )
    # Bytes after the last line break were being written when the run died.
    lines = content.split(b"\n")[:-1]
    if not lines:
        raise sb.RecordError(f"{path}: no header; a record's first line says what ran.")
    header = _read_header(_parse(lines[0], f"{path}, line 1"), f"{path}, line 1")
    points, observations, end = list[Point](), list[Observation](), None
    for number, line in enumerate(lines[1:], start=2):
        where = f"{path}, line {number}"
        entry = _parse(line, where)
        if end is not None:
            raise sb.RecordError(f"{where}: something follows the end of the run.")
        with _placed(where):
            match entry.pop("kind", None):
                case "point":
                    points.append(read_fields(Point, entry))
                case "observation":
                    observations.append(read_fields(Observation, entry))
                case "end":
                    end = read_value(entry, _READ["end"], "end")
                case other:
                    raise ValueError(f"kind is {other!r}, expected 'point', 'observation' or 'end'")
    run = Run(
        header=header, points=tuple(points), observations=tuple(observations), end=end, path=path
    )
    by_class = [*(point.class_errors for point in points), run.meters.get("class_shares")]
    if len(counts := {len(each) for each in by_class if each is not None}) > 1:
        numbers = " and ".join(map(str, sorted(counts)))
        raise sb.RecordError(
            f"{path}: class_errors and class_shares are of {numbers} classes, expected one number."
        )
    return run


def is_recorded(path: Path) -> bool:
    """Return whether there is a record, finished or not, in a file or in a pack."""
    return path.exists() or path.name in packed(path.parent)


def record_paths(folder: str | Path) -> list[Path]:
    """Return the paths of all records of a folder, also of packed ones, in order of name."""
    return [*_contents(folder)]


def read_runs(folder: str | Path) -> list[Run]:
    """Read all records of a folder in order of name, except `.partial` and `.replaced` ones."""
    return [
        read_run(path) if content is None else _run(path, content)
        for path, content in _contents(folder).items()
    ]


def _contents(folder: str | Path) -> dict[Path, bytes | None]:
    folder = _existing(folder)
    found = {**packed(folder), **{path.name: None for path in folder.glob(f"*{SUFFIX}")}}
    return {folder / name: found[name] for name in sorted(found)}


def pack_finished(folder: str | Path) -> tuple[int, list[str]]:
    """Move a folder's finished records into its pack; return how many, and why others stay."""
    loose, problems = list[Path](), list[str]()
    folder = _existing(folder)
    with told(folder / PACK), locked(folder):  # another process may be packing the same files
        for path in filter(Path.exists, record_paths(folder)):
            try:
                run = read_run(path)
            except sb.RecordError as error:
                problems.append(f"{error} It is left as it is.")
                continue
            name = record_name(run.header.identity)
            if run.finished and path.name != name:
                problems.append(
                    f"{path}: a pack would keep this record as {name}, so it is left as it is. "
                    "To pack it, give it that name, in another folder if the name is taken."
                )
            elif run.finished:
                loose.append(path)
        if loose:
            pack(loose)
    return len(loose), problems


def utc_now() -> str:
    """Return the time as records write it: ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _existing(folder: str | Path) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        raise sb.RecordError(f"{folder}: no such folder of records.")
    return folder


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        return decode(line)
    except ValueError as error:
        raise sb.RecordError(
            f"{where}: not a line of a record ({error}). Only a record's last line may be cut off, "
            "so this file was changed after it was written."
        ) from error


def _read_header(entry: dict[str, Any], where: str) -> Header:
    for name, expected in (("kind", "run"), ("schema", SCHEMA)):
        if entry.get(name) != expected:
            raise sb.RecordError(
                f"{where}: {name} {entry.get(name)!r}, expected {expected!r}: this is not a "
                "record's first line, or a version with another schema wrote it."
            )
    with _placed(where):
        header = read_fields(Header, entry)
        read_value(header.identity, IDENTITY, "identity", needed=True)
        for name in ("config", "hardware"):
            read_value(getattr(header, name), _READ[name], name)
    return header


@contextmanager
def _placed(where: str) -> Generator[None]:
    try:
        yield
    except ValueError as error:
        raise sb.RecordError(f"{where}: {error}.") from error
