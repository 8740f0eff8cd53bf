"""Records of runs: plain lines that survive a crash at any moment, and all that is ever drawn.

One run is one record of JSON lines, named `<strategy>-seed<k>-<key>.jsonl`, where the key is a
short hash of the run's identity:

    {"kind": "run", "schema": 2, "identity": {…}, "config": {…}, …}         what runs, written first
    {"kind": "point", "progress": 0.1, "test_error": 12.5, …}               one per evaluation
    {"kind": "observation", "probe": …, "seen": {…}, …}                     what a probe saw then
    {"kind": "end", "status": "finished", "meters": {…}, …}                 only if it got there

The first line appears together with the file, whole or not at all; each later line is appended and
forced to the disk before the writer returns. A crash can therefore only cost the line being
written, and a record without its last line is a run that did not finish.

A folder keeps records as files, as one compressed pack (see `pack`), or both; reading a record asks
for its path in the folder in either case.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypedDict

import selective_backprop as sb
from selective_backprop_lab.records.fields import read_value
from selective_backprop_lab.records.lines import SUFFIX, Identity, decode, record_name
from selective_backprop_lab.records.pack import pack, packed
from selective_backprop_lab.records.provenance import Hardware, provenance

SCHEMA = 2


@dataclass(frozen=True, kw_only=True)
class Point:
    """What is known of a run at one evaluation; every counter counts from the run's start."""

    progress: float  # share of the run's own length, 0 to 1
    epoch: float
    cost: float  # in passes of traditional training: scoring 1, training 3, per example
    seconds: float  # of wall time, evaluation left out
    cpu_seconds: float  # of this process, evaluation left out
    updates: int
    candidates: int
    loaded: int
    scored: int  # forwards for scoring, in examples
    trained: int  # forwards and backwards for training, in examples
    test_error: float  # percent
    test_loss: float
    train_loss: float  # mean over the training batches since the last point
    rate: float  # share of the candidates since the last point that was trained on
    phases: Mapping[str, float]  # seconds: load, score, select, forward, backward, step, other
    overhead: float | None = None  # wall seconds of setting up and of evaluations; None: unmetered
    # Of each class in order of the labels, percent; NaN for one without test examples. None in
    # records of before these were kept.
    class_errors: tuple[float, ...] | None = None
    ranking: float | None = None  # area under the curve, 0 to 1, where there are two classes

    @property
    def forwards(self) -> int:
        """Forward passes so far, in examples: for scoring and for training."""
        return self.scored + self.trained


class Composed(TypedDict, total=False):
    """What was made of the data, as a configuration says it."""

    skew: float
    copies: float
    near_copies: int
    places: int | None
    noise_kind: str
    seed: int


class Tried(TypedDict, total=False):
    """What is read of a recipe."""

    learning_rate: float


class Config(TypedDict, total=False):
    """What is read of a configuration, which holds more."""

    data: str
    model: str
    limit: int | None
    noise: float | None
    composition: Composed
    pretrained: str
    recipe: Tried
    epochs: float
    budget: float
    budget_unit: str
    schedules_follow: str


class Meters(TypedDict, total=False):
    """What is read of what was metered over a whole run."""

    class_shares: list[float]  # of the training data, in order of the labels; none of text
    prepared_cost: float
    test_examples: int
    train_error: float
    # The share that looked wrong (`SelectiveLoader.wrong_labels`), 0 if it was no clear one.
    wrong_labels: float | None


class End(TypedDict, total=False):
    """What the last line of a record says."""

    status: str
    ended: str  # ISO 8601, UTC
    elapsed: float  # seconds
    meters: Meters


@dataclass(frozen=True, kw_only=True)
class Header:
    """What runs, and where: the first line of a record."""

    identity: Annotated[Mapping[str, Any], Identity]  # what was chosen, by which the run is found
    config: Annotated[Mapping[str, Any], Config]  # all that was in force, defaults included
    device: str
    code_version: str
    versions: Mapping[str, str]
    hardware: Annotated[Mapping[str, Any], Hardware]
    command: str
    started: str  # ISO 8601, UTC
    model_file: str | None = None  # fingerprint of the file that a model of the user's is made in
    data_file: str | None = None  # and of the file that data of the user's are read in

    @property
    def arm(self) -> str:
        """The strategy's name."""
        return self.identity["strategy"]["name"]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.identity["seed"]

    @classmethod
    def here(
        cls, identity: Mapping[str, Any], config: Mapping[str, Any], **more: str | None
    ) -> "Header":
        """Describe a run that starts now, on this machine, with this code."""
        found: dict[str, Any] = {**provenance(), "started": utc_now(), **more}
        return cls(identity=identity, config=config, **found)


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
    def meters(self) -> Mapping[str, Any]:
        """What was metered over the whole run; nothing of one that did not end."""
        return (self.end or {}).get("meters", {})

    @property
    def name(self) -> str:
        """What messages call this run: its file, or its strategy and seed where it has none."""
        return self.path.name if self.path else f"{self.header.arm}, seed {self.header.seed}"


def record_path(folder: str | Path, header: Header) -> Path:
    """Return the file in which a run is recorded: same identity, same file."""
    return Path(folder) / record_name(header.identity)


def read_run(path: str | Path) -> Run:
    """Read one record, up to its last whole line: from its file, else from the pack beside it.

    Raises:
        RecordError: if it cannot be read, does not begin with a header of this schema, or holds a
            line (other than a last one, cut off) that is not what it should be.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        content = packed(path.parent).get(path.name)
        if content is None:
            raise sb.RecordError(f"{path}: there is no such record.") from error
    except OSError as error:
        raise sb.RecordError(f"{path}: cannot be read ({error.strerror}).") from error
    # What follows the last line break was being written when the run died.
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
        match entry.pop("kind", None):
            case "point":
                points.append(_read_entry(Point, entry, where))
            case "observation":
                observations.append(_read_entry(Observation, entry, where))
            case "end":
                end = _read_entry(End, entry, where)
            case other:
                raise sb.RecordError(
                    f"{where}: kind is {other!r}, expected 'point', 'observation' or 'end'."
                )
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
    """Return whether there is a record, finished or not, as a file or packed."""
    return path.exists() or path.name in packed(path.parent)


def record_paths(folder: str | Path) -> list[Path]:
    """Return every record of a folder, packed ones included, in order of name.

    Raises:
        RecordError: if the folder is missing, or its pack cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise sb.RecordError(f"{folder}: no such folder of records.")
    names = {path.name for path in folder.glob(f"*{SUFFIX}")}
    return [folder / name for name in sorted(names.union(packed(folder)))]


def read_runs(folder: str | Path) -> list[Run]:
    """Read every record of a folder, in order of name; what was set aside is left out."""
    return [read_run(path) for path in record_paths(folder)]


def pack_finished(folder: str | Path) -> int:
    """Move the finished records of a folder into its pack, and return how many there were."""
    loose = [path for path in record_paths(folder) if path.exists() and read_run(path).finished]
    if loose:
        pack(loose)
    return len(loose)


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
    for name, expected in (("kind", "run"), ("schema", SCHEMA)):
        if entry.get(name) != expected:
            raise sb.RecordError(
                f"{where}: {name} {entry.get(name)!r}, expected {expected!r}: a record's first "
                "line says what ran, and one of another schema is for the version that wrote it."
            )
    return _read_entry(Header, entry, where)


def _read_entry(kind: Any, entry: Mapping[str, Any], where: str) -> Any:
    try:
        return read_value(entry, kind, kind.__name__.lower())
    except ValueError as error:
        raise sb.RecordError(f"{where}: {error}.") from error
