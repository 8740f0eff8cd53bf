"""Records as they are found, damaged and mixed ones among them: what can be shown, what is wrong.

`read_runs` and `gather` refuse what they cannot vouch for. A report shows what can be shown, and
says of the rest why it is left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import selective_backprop as sb
from selective_backprop.lab.analysis.grouping import as_text, differences, length_of
from selective_backprop.lab.records.example_history import SUFFIX as EXAMPLES
from selective_backprop.lab.records.example_history import ExampleHistory, read_examples
from selective_backprop.lab.records.identity import SUFFIX
from selective_backprop.lab.records.schema import Run, is_recorded, read_run, record_paths

_DATA = ("data", "limit", "noise")
_ALIKE = (*_DATA, "model")


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
    share of flipped labels, of one configuration for each arm and length, and of one record for
    each seed, a finished one before an unfinished and the newest before an older one.

    Args:
        places: folders of records, or single records.

    Raises:
        RecordError: if a place does not exist, or there is not one record to show; the message
            has all that is wrong.
    """
    problems: list[str] = []
    runs = _alike(
        places, _ALIKE, "A folder of their own would let them be compared.", problems=problems
    )
    kept: list[Run] = []
    for arm in dict.fromkeys(map(_arm, runs)):
        alike = [run for run in runs if _arm(run) == arm]
        kept += _newest(_largest(alike, _recipe, _words_of_recipes, problems), problems)
    histories = _histories(kept, problems)
    return Survey(tuple(kept), histories, tuple(problems))


def survey_data(places: Sequence[str | Path]) -> Survey:
    """Read every record of the data that most of them share, of whatever was trained on it.

    Args:
        places: folders of records, or single records.

    Raises:
        RecordError: as `survey` does.
    """
    problems: list[str] = []
    runs = _alike(places, _DATA, "Name them alone to have them.", problems=problems)
    histories = _histories(runs, problems)
    return Survey(tuple(runs), histories, tuple(problems))


def with_histories(runs: Sequence[Run]) -> Survey:
    """Return runs that are known to belong together, with what became of their examples."""
    problems: list[str] = []
    histories = _histories(runs, problems)
    return Survey(tuple(runs), histories, tuple(problems))


def _alike(
    places: Sequence[str | Path], names: Sequence[str], advice: str, *, problems: list[str]
) -> list[Run]:
    """Return the records that most share some parts of their configurations with.

    Args:
        places: folders of records, or single records.
        names: of those parts.
        advice: what to do about the others.
        problems: told of what is left out, and why.

    Raises:
        RecordError: if a place does not exist, or there is not one record.
    """
    runs = list(_read(_files(places), problems))
    problems += _without_record(places)
    if not runs:
        wrong = "".join(f"\n  {problem}" for problem in problems)
        named = ", ".join(map(str, places))
        raise sb.RecordError(
            f"there is no record to show in {named}; compare and train write them.{wrong}"
        )

    def key(run: Run) -> str:
        return as_text([run.header.config.get(name) for name in names])

    def words(left: Sequence[Run], kept: Sequence[Run]) -> str:
        return f"{_words_of_others(left, kept, names)} {advice}"

    return _largest(runs, key, words, problems)


def _files(places: Sequence[str | Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for place in map(Path, places):
        if not place.exists():
            raise sb.RecordError(f"{place}: no such folder of records.")
        found = record_paths(place) if place.is_dir() else [place]
        for path in found:
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def _without_record(places: Sequence[str | Path]) -> Iterator[str]:
    """Say which files of examples have lost their records."""
    for folder in dict.fromkeys(place for place in map(Path, places) if place.is_dir()):
        for file in sorted(folder.glob(f"*{EXAMPLES}")):
            record = file.with_name(file.name.removesuffix(EXAMPLES) + SUFFIX)
            if not is_recorded(record):
                yield (
                    f"{file}: its record {record.name} is missing, so that nobody knows of which "
                    "data it is, and it is left out. Put the record back beside it."
                )


def _read(files: Iterator[Path], problems: list[str]) -> Iterator[Run]:
    for path in files:
        try:
            run = read_run(path)
            length_of(run)
        except sb.RecordError as error:
            problems.append(f"{error} It is left out.")
            continue
        yield run


def _largest(
    runs: Sequence[Run],
    key: Callable[[Run], str],
    words: Callable[[Sequence[Run], Sequence[Run]], str],
    problems: list[str],
) -> list[Run]:
    """Return the largest group of runs of one key, the newest of equals; say what is left out."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)

    def size(group: list[Run]) -> tuple[int, str]:
        return len(group), max(run.header.started for run in group)

    chosen = max(groups.values(), key=size)
    for group in groups.values():
        if group is not chosen:
            problems.append(words(group, chosen))
    return chosen


def _words_of_others(left: Sequence[Run], kept: Sequence[Run], names: Sequence[str]) -> str:
    one, other = left[0].header.config, kept[0].header.config
    differing = [name for name in names if as_text(one.get(name)) != as_text(other.get(name))]
    found = ", ".join(f"{name} {_value(one.get(name))}" for name in differing)
    shown = ", ".join(f"{name} {_value(other.get(name))}" for name in differing)
    return (
        f"{_counted(left)} of {found}, and not of {shown} like the others, "
        f"{'is' if len(left) == 1 else 'are'} left out: {_named(left)}."
    )


def _arm(run: Run) -> tuple[str, Any]:
    return run.header.arm, length_of(run)


def _recipe(run: Run) -> str:
    config = {name: value for name, value in run.header.config.items() if name != "seed"}
    return as_text(config)


def _words_of_recipes(left: Sequence[Run], kept: Sequence[Run]) -> str:
    found = ", ".join(sorted(differences([left[0], kept[0]], ignore={"seed"})))
    return (
        f"{_counted(left)} of {left[0].header.arm} with another {found} than the rest of that arm "
        f"{'is' if len(left) == 1 else 'are'} left out: {_named(left)}."
    )


def _newest(runs: Sequence[Run], problems: list[str]) -> list[Run]:
    """Return one run of each seed."""
    kept: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: (run.finished, run.header.started)):
        other = kept.get(run.header.seed)
        if other is not None:
            problems.append(
                f"{other.name} is left out: {run.name} is {run.header.arm}, seed "
                f"{run.header.seed}, as well, and {_better(run, other)}."
            )
        kept[run.header.seed] = run
    return list(kept.values())


def _better(run: Run, other: Run) -> str:
    return "newer" if run.finished is other.finished else "finished"


def _histories(runs: Sequence[Run], problems: list[str]) -> dict[Path, ExampleHistory]:
    found: dict[Path, ExampleHistory] = {}
    sizes: dict[int, int] = {}
    for run in runs:
        if run.path is None:
            continue
        try:
            history = read_examples(run.path)
        except sb.RecordError as error:
            problems.append(f"{error} What became of the examples of this run is not shown.")
            continue
        if history is not None:
            found[run.path] = history
            sizes[len(history)] = sizes.get(len(history), 0) + 1
    usual = max(sizes, key=lambda size: sizes[size], default=0)
    for path, history in list(found.items()):
        if len(history) != usual:
            del found[path]
            problems.append(
                f"{path}: of {len(history)} examples, where the others are of {usual}. What "
                "became of the examples of this run is not shown."
            )
    return found


def _value(value: Any) -> str:
    return "none" if value is None else as_text(value)


def _counted(runs: Sequence[Run]) -> str:
    return f"{len(runs)} record{'' if len(runs) == 1 else 's'}"


def _named(runs: Sequence[Run], most: int = 4) -> str:
    names = [run.name for run in runs[:most]]
    more = len(runs) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
