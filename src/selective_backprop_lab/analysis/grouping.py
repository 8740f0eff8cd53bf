"""Which runs may be compared, in groups of one strategy and length each.

Runs of different data or models are never compared. Whatever else differs (code, versions,
hardware, recipe) is put into words by `run_summary.notes`, which every table and page shows.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import selective_backprop as sb
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.frame import is_text, length_of
from selective_backprop_lab.records.schema import Run

BASELINE = "traditional"
DATA = ("data", "limit", "noise", "composition", "pretrained")
CROWD = 9  # more curves than this cannot be followed, nor named beside a figure
# What a group may have for itself; all else in a configuration is the recipe, the same for all.
OF_THE_GROUP = frozenset({"arm", "seed", "strategy", "epochs", "budget", "budget_unit"})
_MOST_NAMED = 4  # records in a message
# The order in which a reader wants strategies: the baseline, the controls, the methods by name.
_CONTROLS = (BASELINE, "random-backprop", "random-scored")


@dataclass(frozen=True)
class Measure:
    """What the error of a run is, in words."""

    name: str
    axis: str
    heading: str  # of a column
    unit: str  # after a value
    step: str  # of a difference


_ERROR = Measure("error", "test error (%)", "error %", " %", "points")
_BITS = Measure("bits per byte", "bits per byte", "bits per byte", "", "bits per byte")


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """One strategy at one length, with its runs in order of seed."""

    name: str
    label: str  # the name, and the length where the comparison has several
    length: Budget
    runs: tuple[Run, ...]  # finished; only these count
    unfinished: tuple[Run, ...] = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the finished runs."""
        return tuple(run.header.seed for run in self.runs)

    @property
    def is_baseline(self) -> bool:
        """Whether this is traditional training, of whatever length."""
        return self.name == BASELINE

    @property
    def cost(self) -> float:
        """Mean cost of the finished runs, in passes of traditional training; 0 without any."""
        return sum(run.points[-1].cost for run in self.runs) / max(1, len(self.runs))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Groups that may be compared."""

    groups: tuple[RunGroup, ...]  # the longest first; within a length traditional first
    runs: tuple[Run, ...]  # all of them, as given

    @cached_property
    def baseline(self) -> RunGroup | None:
        """The longest traditional training; its final error is what all are timed against."""
        found = [group for group in self.groups if group.is_baseline and group.runs]
        return max(found, key=lambda group: group.cost, default=None)

    @property
    def measure(self) -> Measure:
        """What the error is: of text it is bits per byte."""
        return measure_of(self.runs[0])

    @property
    def is_crowd(self) -> bool:
        """Whether there are more strategies than curves that can be told apart."""
        return len({group.name for group in self.groups}) > CROWD

    @property
    def lengths(self) -> tuple[Budget, ...]:
        """The lengths that occur, in the order of the groups."""
        return tuple(dict.fromkeys(group.length for group in self.groups))

    @property
    def strategies(self) -> dict[str, list[RunGroup]]:
        """The groups with finished runs by strategy, the cheapest first."""
        found: dict[str, list[RunGroup]] = {}
        for group in self.groups:
            if group.runs:
                found.setdefault(group.name, []).append(group)
        return {name: sorted(own, key=lambda group: group.cost) for name, own in found.items()}

    def same_length(self, group: RunGroup) -> RunGroup | None:
        """Return traditional training of the same length as a group, if it was run."""
        for other in self.groups:
            if other.is_baseline and other.length == group.length and other.runs:
                return other
        return None


def gather(runs: Sequence[Run]) -> Comparison:
    """Sort runs, finished or not, into groups that may be compared.

    The error of text is replaced by bits per byte: the mean cross-entropy over ln 2.

    Raises:
        RecordError: if there are no runs, or some cannot be compared; see `comparable`.
    """
    if not runs:
        raise sb.RecordError("There are no records to compare; run at least one strategy first.")
    _, problems = comparable(runs)
    if problems:
        raise sb.RecordError(
            f"These records cannot be compared: {problems[0]} Keep the records of each comparison "
            "in a folder of their own."
        )
    runs = [_in_bits(run) if is_text(run.header.config.get("data", "")) else run for run in runs]
    several = len({length_of(run) for run in runs}) > 1
    ordered = sorted(runs, key=lambda run: (*_rank(run.header.arm), run.header.seed))
    ordered.sort(key=length_of, reverse=True)
    groups = [
        RunGroup(
            name=name,
            label=f"{name} @ {length.short}" if several else name,
            length=length,
            runs=tuple(run for run in own if counts(run)),
            unfinished=tuple(run for run in own if not counts(run)),
        )
        for (length, name), own in _by(
            ordered, lambda run: (length_of(run), run.header.arm)
        ).items()
    ]
    return Comparison(groups=tuple(groups), runs=tuple(runs))


def comparable(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs that may be compared, and in sentences why the others may not.

    Kept is the largest group of one data set, model and share of flipped labels; of each strategy
    and length, the largest group of one configuration; and of each seed one run, a finished one
    before an unfinished and the newest before an older one.
    """
    alike, problems = largest(runs, (*DATA, "model"))
    kept: list[Run] = []
    for own in _by(alike, lambda run: (run.header.arm, length_of(run))).values():
        same, others = largest(own)
        found: dict[int, Run] = {}
        for run in sorted(same, key=lambda run: (run.finished, run.header.started)):
            if other := found.get(run.header.seed):
                better = "newer" if run.finished is other.finished else "finished"
                others.append(
                    f"{other.name} and {run.name} are both {run.header.arm}, seed "
                    f"{run.header.seed}; the second is {better}."
                )
            found[run.header.seed] = run
        kept += found.values()
        problems += others
    return kept, problems


def largest(runs: Sequence[Run], names: Iterable[str] = ()) -> tuple[list[Run], list[str]]:
    """Return the largest group of runs that share some options, and what the others have instead.

    Without names all options but the seed count. Of groups as large the one of the newest run wins.
    """

    def options(run: Run) -> dict[str, str]:
        config = run.header.config
        found = {name: config.get(name) for name in names} or flat(config, ignore={"seed"})
        return {name: as_text(value) for name, value in sorted(found.items()) if value is not None}

    def key(run: Run) -> str:
        return as_text(options(run))

    groups = _by(sorted(runs, key=key), key).values()
    kept = max(groups, key=lambda own: (len(own), max(run.header.started for run in own)))
    usual, problems = options(kept[0]), []
    for group in groups:
        own = options(group[0])
        differing = [name for name in {**own, **usual} if own.get(name) != usual.get(name)]
        if differing:
            here, there = (
                ", ".join(f"{name} {each.get(name, 'none')}" for name in differing)
                for each in (own, usual)
            )
            named = ", ".join(run.name for run in group[:_MOST_NAMED])
            if more := group[_MOST_NAMED:]:
                named += f" and {len(more)} more"
            noun = "1 record has" if len(group) == 1 else f"{len(group)} records have"
            problems.append(f"{noun} {here}, where the others have {there}: {named}.")
    return kept, problems


def measure_of(run: Run) -> Measure:
    """Return what the error of a run is in words."""
    return _BITS if is_text(run.header.config.get("data", "")) else _ERROR


def counts(run: Run) -> bool:
    """Whether a run enters statistics: it is finished, and was evaluated."""
    return run.finished and bool(run.points)


def differences(runs: Iterable[Run], *, ignore: Iterable[str]) -> set[str]:
    """Return the names under which the configurations of runs differ, as `flat` names them."""
    configs = [flat(run.header.config, ignore=ignore) for run in runs]
    keys = {key for config in configs for key in config}
    return {key for key in keys if len({as_text(config.get(key)) for config in configs}) > 1}


def flat(config: Mapping[str, Any], *, ignore: Iterable[str] = ()) -> dict[str, Any]:
    """Return a configuration without nesting: `{"a": {"b": 1}}` becomes `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key in ignore:
            continue
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": entry for inner, entry in flat(value).items()}
        else:
            found[key] = value
    return found


def as_text(value: Any) -> str:
    """Return a value as messages show it; equal values give equal texts."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _in_bits(run: Run) -> Run:
    points = (replace(point, test_error=point.test_loss / math.log(2.0)) for point in run.points)
    return replace(run, points=tuple(points))


def _rank(name: str) -> tuple[int, str]:
    return (_CONTROLS.index(name) if name in _CONTROLS else len(_CONTROLS), name)


def _by(runs: Iterable[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """Return runs by a key, in the order in which the keys are met."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return found
