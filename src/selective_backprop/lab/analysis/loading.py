"""Records as they are found, damaged ones among them: what can be shown, and what is wrong."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import selective_backprop as sb
from selective_backprop.lab.analysis.grouping import DATA, comparable, largest, length_of
from selective_backprop.lab.records.example_history import SUFFIX as EXAMPLES
from selective_backprop.lab.records.example_history import ExampleHistory, read_examples
from selective_backprop.lab.records.lines import SUFFIX
from selective_backprop.lab.records.schema import Run, is_recorded, read_run, record_paths


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


def with_histories(runs: Sequence[Run]) -> Survey:
    """Return runs that are known to belong together, with what became of their examples."""
    problems: list[str] = []
    return Survey(tuple(runs), _histories(runs, problems), tuple(problems))


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
    problems += _without_record(places)
    if not runs:
        wrong = "".join(f"\n  {problem}" for problem in problems)
        raise sb.RecordError(
            f"there is no record to show in {', '.join(map(str, places))}; compare and train "
            f"write them.{wrong}"
        )
    kept, left_out = choose(runs)
    problems += [f"{problem} {advice}" for problem in left_out]
    return Survey(tuple(kept), _histories(kept, problems), tuple(problems))


def _files(places: Sequence[str | Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for place in map(Path, places):
        if not place.exists():
            raise sb.RecordError(f"{place}: no such folder of records.")
        for path in record_paths(place) if place.is_dir() else [place]:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _without_record(places: Sequence[str | Path]) -> list[str]:
    """Say which files of examples have lost their records."""
    files = [
        (file, file.with_name(file.name.removesuffix(EXAMPLES) + SUFFIX))
        for folder in dict.fromkeys(map(Path, places))
        for file in sorted(folder.glob(f"*{EXAMPLES}"))
    ]
    return [
        f"{file}: its record {record.name} is missing, so that nobody knows of which data it is, "
        "and it is left out. Put the record back beside it."
        for file, record in files
        if not is_recorded(record)
    ]


def _histories(runs: Sequence[Run], problems: list[str]) -> dict[Path, ExampleHistory]:
    found: dict[Path, ExampleHistory] = {}
    for run in runs:
        if run.path is None:
            continue
        try:
            history = read_examples(run.path)
        except sb.RecordError as error:
            problems.append(f"{error} What became of the examples of this run is not shown.")
        else:
            if history is not None:
                found[run.path] = history
    sizes = Counter(map(len, found.values())).most_common(1)
    for path, history in list(found.items()):
        if len(history) != sizes[0][0]:
            del found[path]
            problems.append(
                f"{path}: of {len(history)} examples, where the others are of {sizes[0][0]}. What "
                "became of the examples of this run is not shown."
            )
    return found
