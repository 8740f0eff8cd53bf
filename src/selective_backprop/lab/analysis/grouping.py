"""Which runs belong together: records in, arms that may be compared out, or an error saying why.

Runs of different data or models are never compared. Whatever else differs (code, versions,
hardware, recipe) is put into words by `facts.notes`, which every table and page shows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import selective_backprop as sb
from selective_backprop.lab.budget import Length
from selective_backprop.lab.records.schema import Run

BASELINE = "traditional"
CROWD = 9  # more curves than this cannot be followed, nor named beside a figure
# What an arm may have for itself; all else in a configuration is the recipe, the same for all.
OF_THE_ARM = frozenset({"arm", "seed", "strategy", "epochs", "budget", "budget_unit"})
# Arms in the order in which a reader wants them: the baseline, the controls, the methods by name.
_CONTROLS = (BASELINE, "random-backprop", "random-scored")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One strategy at one length, with its runs in order of seed."""

    name: str
    label: str  # the name, and the length where the comparison has several
    length: Length
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
    """Arms that may be compared."""

    arms: tuple[Arm, ...]  # by length, the longest first; within a length traditional first
    runs: tuple[Run, ...]  # all of them, as given

    @property
    def baseline(self) -> Arm | None:
        """The longest traditional training; its final error is what every arm is timed against."""
        found = [arm for arm in self.arms if arm.is_baseline and arm.runs]
        return max(found, key=lambda arm: arm.cost, default=None)

    @property
    def is_crowd(self) -> bool:
        """Whether there are more strategies than curves that can be told apart."""
        return len({arm.name for arm in self.arms}) > CROWD

    @property
    def lengths(self) -> tuple[Length, ...]:
        """The lengths that occur, in the order of the arms."""
        return tuple(dict.fromkeys(arm.length for arm in self.arms))

    def same_length(self, arm: Arm) -> Arm | None:
        """Return traditional training of the same length as an arm, if it was run."""
        for other in self.arms:
            if other.is_baseline and other.length == arm.length and other.runs:
                return other
        return None


def gather(runs: Sequence[Run]) -> Comparison:
    """Sort runs into arms that may be compared.

    Args:
        runs: records in any order, finished or not. An arm's own configuration lies under the
            keys of `OF_THE_ARM`; the rest should be the same for all.

    Raises:
        RecordError: if there are no runs, if they differ in data or model, or if two runs of the
            same arm, length and seed, or two configurations of the same arm and length, are among
            them.
    """
    if not runs:
        raise sb.RecordError("There are no records to compare; run at least one arm first.")
    for key in ("data", "limit", "noise", "model"):
        _refuse_mixture(runs, key)
    lengths = sorted({length_of(run) for run in runs}, reverse=True)
    groups: dict[tuple[Length, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((length_of(run), run.header.arm), []).append(run)
    arms = tuple(
        _arm(name, length, groups[length, name], several=len(lengths) > 1)
        for length in lengths
        for name in sorted({run.header.arm for run in runs}, key=_rank)
        if (length, name) in groups
    )
    return Comparison(arms=arms, runs=tuple(runs))


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


def length_of(run: Run) -> Length:
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
    return Length(unit, float(value))


def _rank(name: str) -> tuple[int, str]:
    return (_CONTROLS.index(name) if name in _CONTROLS else len(_CONTROLS), name)


def _arm(name: str, length: Length, runs: list[Run], *, several: bool) -> Arm:
    runs = sorted(runs, key=lambda run: run.header.seed)
    for earlier, later in pairwise(runs):
        if earlier.header.seed == later.header.seed:
            raise sb.RecordError(
                f"{earlier.name} and {later.name} are both {name}, seed {later.header.seed}. "
                "Keep the records of each comparison in a folder of their own."
            )
        different = differences([earlier, later], ignore={"seed"})
        if different:
            raise sb.RecordError(
                f"{earlier.name} and {later.name} are both {name}, but differ in "
                f"{', '.join(sorted(different))}. Give the arms different names, or the records "
                "different folders."
            )
    return Arm(
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
