"""Which runs belong together: records in, groups that may be compared out, or an error saying why.

Runs of different data or models are never compared. Whatever else differs (code, versions,
hardware, recipe) is put into words by `run_summary.notes`, which every table and page shows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import selective_backprop as sb
from selective_backprop.lab.budget import Budget
from selective_backprop.lab.records.schema import Run

BASELINE = "traditional"
CROWD = 9  # more curves than this cannot be followed, nor named beside a figure
# What a group may have for itself; all else in a configuration is the recipe, the same for all.
OF_THE_GROUP = frozenset({"arm", "seed", "strategy", "epochs", "budget", "budget_unit"})
# The order in which a reader wants strategies: the baseline, the controls, the methods by name.
_CONTROLS = (BASELINE, "random-backprop", "random-scored")


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
    """Sort runs into groups that may be compared.

    Args:
        runs: records in any order, finished or not. What a group has for itself lies under the
            keys of `OF_THE_GROUP`; the rest should be the same for all.

    Raises:
        RecordError: if there are no runs, if they differ in data or model, or if two runs of the
            same strategy, length and seed, or two configurations of the same strategy and length,
            are among them.
    """
    if not runs:
        raise sb.RecordError("There are no records to compare; run at least one strategy first.")
    for key in ("data", "limit", "noise", "model"):
        _refuse_mixture(runs, key)
    lengths = sorted({length_of(run) for run in runs}, reverse=True)
    found: dict[tuple[Budget, str], list[Run]] = {}
    for run in runs:
        found.setdefault((length_of(run), run.header.arm), []).append(run)
    groups = tuple(
        _group(name, length, found[length, name], several=len(lengths) > 1)
        for length in lengths
        for name in sorted({run.header.arm for run in runs}, key=_rank)
        if (length, name) in found
    )
    return Comparison(groups=groups, runs=tuple(runs))


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


def length_of(run: Run) -> Budget:
    """Return how long a run was meant to be.

    Raises:
        RecordError: if its configuration does not say.
    """
    config = run.header.config
    budgeted = config.get("budget") is not None
    unit = str(config.get("budget_unit") or "cost") if budgeted else "epochs"
    value = config["budget"] if budgeted else config.get("epochs", 0)
    if not isinstance(value, int | float) or unit not in {"epochs", "cost", "seconds"}:
        raise sb.RecordError(
            f"{run.name}: a length of {value!r} {unit!r}; expected a number of epochs, or a budget "
            "with budget_unit 'cost' or 'seconds'."
        )
    return Budget(unit, float(value))


def _rank(name: str) -> tuple[int, str]:
    return (_CONTROLS.index(name) if name in _CONTROLS else len(_CONTROLS), name)


def _group(name: str, length: Budget, runs: list[Run], *, several: bool) -> RunGroup:
    runs = sorted(runs, key=lambda run: run.header.seed)
    for earlier, later in pairwise(runs):
        if earlier.header.seed == later.header.seed:
            raise sb.RecordError(
                f"{earlier.name} and {later.name} are both {name}, seed {later.header.seed}. "
                "Keep the records of each comparison in a folder of their own."
            )
        if different := differences([earlier, later], ignore={"seed"}):
            raise sb.RecordError(
                f"{earlier.name} and {later.name} are both {name}, but differ in "
                f"{', '.join(sorted(different))}. Give the strategies different names, or the "
                "records different folders."
            )
    return RunGroup(
        name=name,
        label=f"{name} @ {length.short}" if several else name,
        length=length,
        runs=tuple(run for run in runs if counts(run)),
        unfinished=tuple(run for run in runs if not counts(run)),
    )


def _refuse_mixture(runs: Sequence[Run], key: str) -> None:
    found: dict[str, Run] = {}
    for run in runs:
        found.setdefault(as_text(run.header.config.get(key)), run)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise sb.RecordError(
            f"The records differ in {key}: {one} in {first.name}, {other} in {second.name}. "
            "Compare them in folders of their own."
        )
