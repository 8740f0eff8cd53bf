"""Read records, of which some may be damaged: return the good ones, and say what is wrong."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mode

import pandas as pd

import selective_backprop as sb
from selective_backprop_lab.analysis.comparison import DATA, comparable, largest
from selective_backprop_lab.records.example_history import SUFFIX as EXAMPLES
from selective_backprop_lab.records.example_history import ExampleHistory, read_examples
from selective_backprop_lab.records.frame import each_run, frame_of, runs_of
from selective_backprop_lab.records.lines import SUFFIX, printable
from selective_backprop_lab.records.schema import is_recorded, read_run, record_paths

_UNSHOWN = "The page does not show the examples of this run."


def read_comparable(places: Sequence[str | Path]) -> tuple[pd.DataFrame, list[str]]:
    """Read the evaluations that may be compared, and say what is left out and why."""
    evaluations, problems = _read(places)
    kept, left_out = comparable(evaluations)
    advice = "Left out; to compare them, move them to a separate folder."
    return kept, [*problems, *(f"{problem} {advice}" for problem in left_out)]


def read_same_data(places: Sequence[str | Path]) -> tuple[pd.DataFrame, list[str]]:
    """Read one row for each run on the most frequent data, whatever was trained on these data."""
    evaluations, problems = _read(places)
    kept, left_out = largest(runs_of(evaluations), DATA)
    return kept, [*problems, *(f"{problem} Left out; audit them alone." for problem in left_out)]


def read_histories(evaluations: pd.DataFrame) -> tuple[Mapping[Path, ExampleHistory], list[str]]:
    """Read the histories of the runs' examples, by record, and say what cannot be shown."""
    found: dict[Path, ExampleHistory] = {}
    problems: list[str] = []
    for run in each_run(evaluations):
        path = Path(run.folder, run.run)
        try:
            history = read_examples(path)
        except sb.RecordError as error:
            problems.append(printable(f"{error} {_UNSHOWN}"))
        else:
            if history is not None:
                found[path] = history
    sizes = {
        path: f"{len(each)} examples in {len(each.class_name)}" for path, each in found.items()
    }
    for path, size in sizes.items():
        if size != (usual := mode(sizes.values())):
            del found[path]
            problems.append(f"{path}: {size} classes, but the others have {usual}. {_UNSHOWN}")
    return found, problems


def _read(places: Sequence[str | Path]) -> tuple[pd.DataFrame, list[str]]:
    problems, found = list[str](), list[pd.DataFrame]()
    for path in _files(places):
        try:
            found.append(frame_of([read_run(path)]))
        except sb.RecordError as error:
            problems.append(f"{error} It is left out.")
    for folder in dict.fromkeys(map(Path, places)):
        for file in sorted(folder.glob(f"*{EXAMPLES}")):
            record = file.with_name(file.name.removesuffix(EXAMPLES) + SUFFIX)
            if not is_recorded(record):
                missing = (
                    f"{file}: its record {record.name} is missing, which says what data these are, "
                    "so the file is left out. Put the record back beside it."
                )
                problems.append(printable(missing))
    if not found:
        wrong = "".join(f"\n  {problem}" for problem in problems)
        raise sb.RecordError(
            f"there is no record to show in {', '.join(map(str, places))}; compare and train "
            f"write records.{wrong}"
        )
    return pd.concat(found, ignore_index=True), problems


def _files(places: Sequence[str | Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for place in map(Path, places):
        if not place.is_dir() and not is_recorded(place):
            raise sb.RecordError(f"{place}: no such folder of records.")
        for path in record_paths(place) if place.is_dir() else [place]:
            found.setdefault(path.resolve(), path)
    return list(found.values())
