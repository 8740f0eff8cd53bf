"""Which runs belong together: records in, arms that may be compared out, or an error saying why.

Runs of different data or models are never compared. Whatever else differs (code, versions,
hardware, recipe) is put into words, in `Comparison.notes`, which every table and page shows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import selective_backprop as sb
from selective_backprop.lab.records import Run

BASELINE = "traditional"
# What an arm may have for itself; all else in a configuration is the recipe, the same for all.
OF_THE_ARM = frozenset({"arm", "seed", "strategy", "epochs", "budget", "budget_unit"})
# Arms in the order in which a reader wants them: the baseline, the controls, the methods by name.
_CONTROLS = (BASELINE, "random-backprop", "random-scored")


@dataclass(frozen=True, order=True)
class Length:
    """How long a run is meant to be: by epochs, or by a budget of cost or of seconds."""

    unit: str  # "epochs", "cost" (in passes of traditional training) or "seconds"
    value: float

    @property
    def short(self) -> str:
        """The length as it stands behind an arm's name."""
        return f"{self.value:g} s" if self.unit == "seconds" else f"{self.value:g}"

    @property
    def words(self) -> str:
        """The length in a sentence."""
        if self.unit == "cost":
            return f"a budget of {self.value:g} traditional epochs"
        if self.unit == "seconds":
            return f"a budget of {self.value:g} seconds"
        return f"{self.value:g} epochs"


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
    """Arms that may be compared, and what has to be said about them."""

    arms: tuple[Arm, ...]  # by length, the longest first; within a length traditional first
    facts: tuple[tuple[str, str], ...]  # what ran, as pairs of a name and a value
    notes: tuple[str, ...]  # sentences: what differs, what is missing, what was left out
    runs: tuple[Run, ...]

    @property
    def baseline(self) -> Arm | None:
        """The longest traditional training; its final error is what every arm is timed against."""
        found = [arm for arm in self.arms if arm.is_baseline and arm.runs]
        return max(found, key=lambda arm: arm.cost, default=None)

    @property
    def headline(self) -> str:
        """What ran, on one line."""
        facts = dict(self.facts)
        return " · ".join(words.format(facts[name]) for name, words in _HEADLINE.items())

    @property
    def lengths(self) -> tuple[Length, ...]:
        """The lengths that occur, in the order of the arms."""
        return tuple(dict.fromkeys(arm.length for arm in self.arms))

    def fact(self, name: str) -> str:
        """Return one of the facts."""
        return dict(self.facts)[name]

    def same_length(self, arm: Arm) -> Arm | None:
        """Return traditional training of the same length as an arm, if it was run."""
        for other in self.arms:
            if other.is_baseline and other.length == arm.length and other.runs:
                return other
        return None


_PLURAL = {
    "epochs": "{} epochs",
    "cost": "budgets of {} traditional epochs",
    "seconds": "budgets of {} seconds",
}
# The facts of the headline, and how each reads there.
_HEADLINE = {
    "data": "{}",
    "model": "{}",
    "length": "{}",
    "seeds": "seeds {}",
    "hardware": "{}",
    "code": "code {}",
}


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
    for key in ("data", "model"):
        _refuse_mixture(runs, key)
    lengths = sorted({_length(run) for run in runs}, reverse=True)
    groups: dict[tuple[Length, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((_length(run), run.header.arm), []).append(run)
    arms = tuple(
        _arm(name, length, groups[length, name], several=len(lengths) > 1)
        for length in lengths
        for name in sorted({run.header.arm for run in runs}, key=_rank)
        if (length, name) in groups
    )
    return Comparison(
        arms=arms, facts=_facts(runs, lengths), notes=tuple(_notes(runs, arms)), runs=tuple(runs)
    )


def name_of(value: Any) -> str:
    """Return how data or a model is called: its name, where it is described by a mapping."""
    if isinstance(value, Mapping):
        return str(value.get("name", _text(value)))
    return "–" if value is None else str(value)


def _length(run: Run) -> Length:
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


def _counts(run: Run) -> bool:
    return run.finished and bool(run.points)


def _arm(name: str, length: Length, runs: list[Run], *, several: bool) -> Arm:
    runs = sorted(runs, key=lambda run: run.header.seed)
    for earlier, later in pairwise(runs):
        if earlier.header.seed == later.header.seed:
            raise sb.RecordError(
                f"{earlier.name} and {later.name} are both {name}, seed {later.header.seed}. "
                "Keep the records of each comparison in a folder of their own."
            )
        different = _differences([earlier, later], ignore={"seed"})
        if different:
            raise sb.RecordError(
                f"{earlier.name} and {later.name} are both {name}, but differ in "
                f"{_listed(different)}. Give the arms different names, or the records different "
                "folders."
            )
    return Arm(
        name=name,
        label=f"{name} @ {length.short}" if several else name,
        length=length,
        runs=tuple(run for run in runs if _counts(run)),
        unfinished=tuple(run for run in runs if not _counts(run)),
    )


def _refuse_mixture(runs: Sequence[Run], key: str) -> None:
    found: dict[str, Run] = {}
    for run in runs:
        found.setdefault(_text(run.header.config.get(key)), run)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise sb.RecordError(
            f"The records differ in {key}: {one} in {first.name}, {other} in {second.name}. "
            "Compare them in folders of their own."
        )


def _notes(runs: Sequence[Run], arms: Sequence[Arm]) -> Iterable[str]:
    for key in sorted(_differences(runs, ignore=OF_THE_ARM)):
        values = _listed(dict.fromkeys(_text(run.header.config.get(key)) for run in runs))
        yield f"The runs do not share one recipe: {key} is {values}."
    if len({run.header.code_version for run in runs}) > 1:
        versions = _listed(dict.fromkeys(run.header.code_version for run in runs))
        yield f"The runs come from different code: {versions}."
    if any("uncommitted" in run.header.code_version for run in runs):
        yield "The code had uncommitted changes, so its version does not pin it down."
    if len({_text(run.header.versions) for run in runs}) > 1:
        yield "The runs used different versions of Python or of libraries."
    if len({_text(run.header.hardware) for run in runs}) > 1:
        yield "The runs come from different hardware or thread counts: seconds do not compare."
    for arm in arms:
        for run in arm.unfinished:
            yield f"{arm.label}, seed {run.header.seed}, {_why(run)}; it is not counted."
    for arm in arms:
        if arm.is_baseline and arm.runs:
            break
    else:
        yield f"There is no finished {BASELINE} run, so nothing can be said about speed-ups."
    if len({frozenset(arm.seeds) for arm in arms if arm.runs}) > 1:
        yield "The arms do not have the same seeds; differences use the seeds both have."


def _why(run: Run) -> str:
    if run.finished:
        return "has no evaluation"
    return f"is unfinished, at {run.points[-1].progress if run.points else 0:.0%} of its length"


def _facts(runs: Sequence[Run], lengths: Sequence[Length]) -> tuple[tuple[str, str], ...]:
    first = runs[0].header
    recipe = {key: value for key, value in first.config.items() if key not in OF_THE_ARM}
    facts = {
        "data": name_of(recipe.pop("data", None)),
        "model": name_of(recipe.pop("model", None)),
        "length": _lengths(lengths),
        "seeds": _seeds(sorted({run.header.seed for run in runs})),
        "runs": f"{sum(map(_counts, runs))} finished of {len(runs)}",
        "hardware": _listed(dict.fromkeys(_machine(run.header.hardware) for run in runs)),
        "code": _listed(dict.fromkeys(run.header.code_version for run in runs)),
        "versions": ", ".join(f"{name} {version}" for name, version in first.versions.items()),
        "started": min(run.header.started for run in runs),
    }
    shared = set(recipe) - _differences(runs, ignore=OF_THE_ARM)
    if shared:
        facts["recipe"] = ", ".join(f"{key} {_text(recipe[key])}" for key in sorted(shared))
    return tuple(facts.items())


def _machine(hardware: Mapping[str, Any]) -> str:
    memory = hardware.get("memory_gib")
    parts = [
        hardware.get("gpu"),
        hardware.get("cpu"),
        _counted(hardware.get("cores"), "core"),
        _counted(hardware.get("threads"), "thread"),
        f"{memory:.0f} GiB" if memory else None,
    ]
    return ", ".join(str(part) for part in parts if part) or "hardware unknown"


def _counted(number: int | None, noun: str) -> str | None:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else None


def _lengths(lengths: Sequence[Length]) -> str:
    words = []
    for unit in dict.fromkeys(length.unit for length in lengths):
        same = [length for length in lengths if length.unit == unit]
        numbers = _listed(f"{length.value:g}" for length in same)
        words.append(same[0].words if len(same) == 1 else _PLURAL[unit].format(numbers))
    return _listed(words)


def _seeds(seeds: Sequence[int]) -> str:
    consecutive = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    return f"{seeds[0]} to {seeds[-1]}" if consecutive else _listed(map(str, seeds))


def _differences(runs: Sequence[Run], *, ignore: Iterable[str]) -> set[str]:
    """Return the keys of the configuration in which runs differ."""
    keys = {key for run in runs for key in run.header.config} - set(ignore)
    return {key for key in keys if len({_text(run.header.config.get(key)) for run in runs}) > 1}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _listed(parts: Iterable[str]) -> str:
    *rest, last = parts
    return f"{', '.join(rest)} and {last}" if rest else last
