"""Records as they are found, damaged ones among them: what can be shown, and what is wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode

import selective_backprop as sb
from selective_backprop_lab.analysis.grouping import DATA, comparable, largest, length_of
from selective_backprop_lab.records.example_history import SUFFIX as EXAMPLES
from selective_backprop_lab.records.example_history import ExampleHistory, read_examples
from selective_backprop_lab.records.lines import SUFFIX
from selective_backprop_lab.records.schema import Run, is_recorded, read_run, record_paths

_UNSHOWN = "What became of the examples of this run is not shown."


@dataclass(frozen=True)
class Survey:
    """What was found."""

    runs: tuple[Run, ...]  # that may be compared, finished or not
    histories: Mapping[Path, ExampleHistory]  # by record, where they were kept
    problems: tuple[str, ...]  # what is wrong with the records, in sentences


def survey(places: Sequence[str | Path]) -> Survey:
    """Read every record in some folders, and say what is wrong with those that cannot be shown.

    Of records that do not belong together the largest group is kept; see `comparable`.

    Raises:
        RecordError: if a place does not exist, or there is not one record to show; the message
            has all that is wrong.
    """
    return _survey(places, comparable, "Left out; a folder of their own lets them be compared.")


def survey_data(places: Sequence[str | Path]) -> Survey:
    """Read every record of the data that most of them share, of whatever was trained on it.

    Raises:
        RecordError: as `survey` does.
    """
    return _survey(places, lambda runs: largest(runs, DATA), "Left out; name them alone.")


def with_histories(runs: Sequence[Run], problems: Sequence[str] = ()) -> Survey:
    """Return runs that belong together, with what became of their examples and all problems."""
    found: dict[Path, ExampleHistory] = {}
    problems = list(problems)
    for run in runs:
        try:
            history = None if run.path is None else read_examples(run.path)
        except sb.RecordError as error:
            problems.append(f"{error} {_UNSHOWN}")
        else:
            if run.path is not None and history is not None:
                found[run.path] = history
    sizes = {path: (len(each), len(each.class_name)) for path, each in found.items()}
    usual = mode(sizes.values()) if sizes else (0, 0)
    odd = {path: size for path, size in sizes.items() if size != usual}
    problems += [
        f"{path}: of {examples} examples in {classes} classes, where the others are of {usual[0]} "
        f"in {usual[1]}. {_UNSHOWN}"
        for path, (examples, classes) in odd.items()
    ]
    kept = {path: history for path, history in found.items() if path not in odd}
    return Survey(tuple(runs), kept, tuple(problems))


def _survey(
    places: Sequence[str | Path],
    choose: Callable[[Sequence[Run]], tuple[list[Run], list[str]]],
    advice: str,
) -> Survey:
    """Read records, and keep those that a choice keeps."""
    problems: list[str] = []
    runs: list[Run] = []
    for path in _files(places):
        try:
            run = read_run(path)
            length_of(run)
        except sb.RecordError as error:
            problems.append(f"{error} It is left out.")
        else:
            runs.append(run)
    for folder in dict.fromkeys(map(Path, places)):
        for file in sorted(folder.glob(f"*{EXAMPLES}")):
            record = file.with_name(file.name.removesuffix(EXAMPLES) + SUFFIX)
            if not is_recorded(record):
                problems.append(
                    f"{file}: its record {record.name} is missing, so that nobody knows of which "
                    "data it is, and it is left out. Put the record back beside it."
                )
    if not runs:
        wrong = "".join(f"\n  {problem}" for problem in problems)
        raise sb.RecordError(
            f"there is no record to show in {', '.join(map(str, places))}; compare and train "
            f"write them.{wrong}"
        )
    kept, left_out = choose(runs)
    return with_histories(kept, [*problems, *(f"{problem} {advice}" for problem in left_out)])


def _files(places: Sequence[str | Path]) -> list[Path]:
    """Return the records in some places, none twice."""
    found: dict[Path, Path] = {}
    for place in map(Path, places):
        if not place.exists():
            raise sb.RecordError(f"{place}: no such folder of records.")
        for path in record_paths(place) if place.is_dir() else [place]:
            found.setdefault(path.resolve(), path)
    return list(found.values())
