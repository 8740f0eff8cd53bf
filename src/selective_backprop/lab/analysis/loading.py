"""Records as they are found, damaged and mixed ones among them: what can be shown, what is wrong.

`read_runs` and `gather` refuse what they cannot vouch for. A report shows what can be shown, and
says of the rest why it is left out.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import selective_backprop as sb
from selective_backprop.lab.analysis.grouping import as_text, differences, length_of
from selective_backprop.lab.records.example_history import SUFFIX as EXAMPLES
from selective_backprop.lab.records.example_history import ExampleHistory, read_examples
from selective_backprop.lab.records.identity import SUFFIX
from selective_backprop.lab.records.schema import Run, is_recorded, read_run, record_paths

_DATA = ("data", "limit", "noise")
_MOST_NAMED = 4


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes:
        runs: that may be compared, finished or not.
        histories: what became of their examples, by record, where that was kept.
        problems: what is wrong with the records, in sentences.
    """

    runs: tuple[Run, ...]
    histories: Mapping[Path, ExampleHistory] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def survey(places: Sequence[str | Path]) -> Survey:
    """Read every record in some folders, and say what is wrong with those that cannot be shown.

    Of records that do not belong together the largest group is kept: of one data set, model and
    share of flipped labels, of one configuration for each strategy and length, and of one record
    for each seed, a finished one before an unfinished and the newest before an older one.

    Raises:
        RecordError: if a place does not exist, or there is not one record to show; the message
            has all that is wrong.
    """
    problems: list[str] = []
    advice = "A folder of their own would let them be compared."
    runs = _alike(places, (*_DATA, "model"), advice, problems)
    kept: list[Run] = []
    for key in dict.fromkeys((run.header.arm, length_of(run)) for run in runs):
        alike = [run for run in runs if (run.header.arm, length_of(run)) == key]
        kept += _newest(_largest(alike, _configuration, _other_configuration, problems), problems)
    return Survey(tuple(kept), _histories(kept, problems), tuple(problems))


def survey_data(places: Sequence[str | Path]) -> Survey:
    """Read every record of the data that most of them share, of whatever was trained on it.

    Raises:
        RecordError: as `survey` does.
    """
    problems: list[str] = []
    runs = _alike(places, _DATA, "Name them alone to have them.", problems)
    return Survey(tuple(runs), _histories(runs, problems), tuple(problems))


def with_histories(runs: Sequence[Run]) -> Survey:
    """Return runs that are known to belong together, with what became of their examples."""
    problems: list[str] = []
    return Survey(tuple(runs), _histories(runs, problems), tuple(problems))


def _alike(
    places: Sequence[str | Path], names: Sequence[str], advice: str, problems: list[str]
) -> list[Run]:
    """Return the records that agree with most others in some parts of their configurations."""
    runs = _read(_files(places), problems)
    problems += _without_record(places)
    if not runs:
        wrong = "".join(f"\n  {problem}" for problem in problems)
        raise sb.RecordError(
            f"there is no record to show in {', '.join(map(str, places))}; compare and train "
            f"write them.{wrong}"
        )

    def key(run: Run) -> str:
        return as_text([run.header.config.get(name) for name in names])

    def words(left: Run, kept: Run) -> str:
        one, other = left.header.config, kept.header.config
        differing = [name for name in names if as_text(one.get(name)) != as_text(other.get(name))]
        values = [
            ", ".join(
                f"{name} {'none' if config.get(name) is None else as_text(config[name])}"
                for name in differing
            )
            for config in (one, other)
        ]
        return f" of {values[0]}, and not of {values[1]} like the others,"

    return _largest(runs, key, words, problems, advice)


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


def _read(files: Sequence[Path], problems: list[str]) -> list[Run]:
    runs = []
    for path in files:
        try:
            run = read_run(path)
            length_of(run)
        except sb.RecordError as error:
            problems.append(f"{error} It is left out.")
        else:
            runs.append(run)
    return runs


def _largest(
    runs: Sequence[Run],
    key: Callable[[Run], str],
    words: Callable[[Run, Run], str],
    problems: list[str],
    advice: str = "",
) -> list[Run]:
    """Return the largest group of runs of one key, the newest of equals; say what is left out."""
    groups = [list(group) for _, group in groupby(sorted(runs, key=key), key)]
    kept = max(groups, key=lambda group: (len(group), max(run.header.started for run in group)))
    for left in groups:
        if left is not kept:
            records, are = ("record", "is") if len(left) == 1 else ("records", "are")
            named = ", ".join(run.name for run in left[:_MOST_NAMED])
            if len(left) > _MOST_NAMED:
                named += f" and {len(left) - _MOST_NAMED} more"
            said = f"{len(left)} {records}{words(left[0], kept[0])} {are} left out: {named}."
            problems.append(f"{said} {advice}".rstrip())
    return kept


def _configuration(run: Run) -> str:
    return as_text({name: value for name, value in run.header.config.items() if name != "seed"})


def _other_configuration(left: Run, kept: Run) -> str:
    found = ", ".join(sorted(differences([left, kept], ignore={"seed"})))
    return f" of {left.header.arm} with another {found} than the rest of that arm"


def _newest(runs: Sequence[Run], problems: list[str]) -> list[Run]:
    """Return one run of each seed."""
    kept: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: (run.finished, run.header.started)):
        other = kept.get(run.header.seed)
        if other is not None:
            better = "newer" if run.finished is other.finished else "finished"
            problems.append(
                f"{other.name} is left out: {run.name} is {run.header.arm}, seed "
                f"{run.header.seed}, as well, and {better}."
            )
        kept[run.header.seed] = run
    return list(kept.values())


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
