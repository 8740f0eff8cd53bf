"""Which runs may be compared, and in which order; records that are damaged are left out.

A comparison is a frame of evaluations (see `records.frame`) of runs that may be compared, with one
more column, `label`: the arm (strategy), with its length if lengths differ. The longest runs come
first. Within a length, the order is traditional training, the controls, the methods by name.
"""

import json
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import Any

import pandas as pd

import selective_backprop as sb
from selective_backprop_lab.analysis.queries import BASELINE, counted, final_error
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.example_history import ExampleHistory, read_examples
from selective_backprop_lab.records.frame import each_run, frame_of, is_text, runs_of
from selective_backprop_lab.records.lines import printable
from selective_backprop_lab.records.schema import is_recorded, read_run, record_paths

CONTROLS = ("random-backprop", "random-scored")  # choose at random; the second pays for scoring
DATA = ("data", "limit", "noise", "composition", "anew", "held_out", "pretrained")
CROWD = 9  # with more curves, a figure cannot be read, and their names do not fit beside it
# What may differ between arms. All else in a configuration is the recipe, which all arms share.
OF_THE_ARM = frozenset({"arm", "seed", "strategy", "epochs", "budget", "budget_unit"})
_MOST_NAMED = 4  # records in a message


@dataclass(frozen=True)
class Measure:
    """The words for a run's error."""

    name: str
    axis: str
    heading: str  # the heading of a column
    unit: str  # what follows a value
    step: str  # the unit of a difference
    small: float  # the largest difference that counts as level, if a tenth of the error is not less


_ERROR = Measure("error", "test error (%)", "error %", " %", "points", 0.5)
_BITS = Measure("bits per byte", "bits per byte", "bits per byte", "", "bits per byte", 0.02)


def compared(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Return evaluations of finished and unfinished runs as a comparison."""
    if evaluations.empty:
        raise sb.RecordError("There are no records to compare; run at least one strategy first.")
    evaluations = evaluations.reset_index(drop=True)
    _, problems = comparable(evaluations)
    if problems:
        raise sb.RecordError(
            f"These records cannot be compared: {problems[0]} Keep the records of each comparison "
            "in a separate folder."
        )
    if evaluations.machine.nunique() > 1:  # which `facts.origins` says
        evaluations = evaluations.assign(seconds=math.nan, cpu_seconds=math.nan)
    first = dict(zip((BASELINE, *CONTROLS), range(-3, 0), strict=True))
    ranks = evaluations.arm.map(lambda arm: first.get(arm, 0))
    named = evaluations.assign(label=evaluations.arm, rank=ranks)
    if len(lengths(evaluations)) > 1:
        units = evaluations.unit.map(lambda unit: " s" if unit == "seconds" else "")
        named.label += " @ " + evaluations.length.map("{:g}".format) + units
    keys = {"unit": False, "length": False, "rank": True, "arm": True, "seed": True}
    return named.sort_values([*keys], ascending=[*keys.values()]).drop(columns="rank")


def comparable(evaluations: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the evaluations that may be compared, and sentences on why the others may not.

    The largest group with the same data and model is kept. Of these, each arm and length keeps its
    largest group with the same configuration, and of each seed the newest finished run.
    """
    evaluations = evaluations.reset_index(drop=True)
    alike, problems = largest(runs_of(evaluations), (*DATA, "model"))
    kept: list[Hashable] = []
    for _, own in alike.groupby(["arm", "unit", "length"], sort=False):
        same, others = largest(own)
        for seed, twins in same.sort_values(["finished", "started"], kind="stable").groupby("seed"):
            *left, (place, best) = twins.iterrows()
            others += [
                f"{run.run} and {best.run} are both {run.arm}, seed {seed}; the second is "
                f"{'newer' if run.finished == best.finished else 'finished'}."
                for _, run in left
            ]
            kept.append(place)
        problems += others
    # A run's first row gives the run its number; the run's other rows follow it.
    numbers = evaluations.index.where(evaluations.evaluation <= 0).to_series().ffill()
    return evaluations[numbers.isin(kept).to_numpy()], problems


def largest(runs: pd.DataFrame, names: Collection[str] = ()) -> tuple[pd.DataFrame, list[str]]:
    """Return the largest (then newest) group of runs that share some or all options but seeds."""

    def options(config: Mapping[str, Any]) -> dict[str, str]:
        chosen = {name for name in config if not names or name.split(".")[0] in names}
        known = sorted(chosen - (set() if names else {"seed"}))
        return {name: as_text(config[name]) for name in known if config[name] is not None}

    keys = runs.config.map(lambda config: as_text(options(config)))
    groups = [own for _, own in runs.groupby(keys)]
    kept = max(groups, key=lambda own: (len(own), own.started.max()))
    usual, problems = options(kept.config.iloc[0]), []
    for own in (each for each in groups if each is not kept):
        others = options(own.config.iloc[0])
        differing = [name for name in {**others, **usual} if others.get(name) != usual.get(name)]
        here, there = (
            ", ".join(f"{name} {each.get(name, 'none')}" for name in differing)
            for each in (others, usual)
        )
        why = f"with {here} (the others have {there})"
        if differing == ["strategy.file"]:
            age = "an older" if own.started.max() < kept.started.max() else "another"
            why = f"of {age} version of {own.arm.iloc[0]}"
        named, more = ", ".join(own.run[:_MOST_NAMED]), len(own) - _MOST_NAMED
        named += f" and {more} more" if more > 0 else ""
        problems.append(f"{len(own)} record{'s' * (len(own) > 1)} {why}: {named}.")
    return kept, problems


def arms(comparison: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the evaluations of each arm at each length by label, including unfinished runs."""
    return {str(label): own for label, own in comparison.groupby("label", sort=False)}


def lengths(evaluations: pd.DataFrame) -> list[Budget]:
    """Return the lengths that occur, in the order of the rows."""
    found = evaluations[["unit", "length"]].drop_duplicates()
    return [Budget(unit, length) for unit, length in found.itertuples(index=False)]


def length(runs: pd.DataFrame) -> Budget:
    """Return the length of an arm's runs."""
    return Budget(runs.unit.iloc[0], runs.length.iloc[0])


def ranking(comparison: pd.DataFrame) -> list[str]:
    """Return the label of each arm's longest runs, by final error, unfinished last."""
    longest: dict[str, tuple[float, str]] = {}
    for label, own in arms(comparison).items():
        known, arm = counted(own), own.arm.iloc[0]
        if arm not in longest or (math.isnan(longest[arm][0]) and len(known)):
            longest[arm] = (final_error(known).mean, label)
    ranked = sorted(longest.values(), key=lambda each: (math.isnan(each[0]), each[0]))
    return [label for _, label in ranked]


def leaders(comparison: pd.DataFrame, count: int) -> list[str]:
    """Return the labels of traditional training and the `count` best arms, at their longest."""
    ranked, found = ranking(comparison), arms(comparison)
    plain = [label for label in ranked if found[label].arm.iloc[0] == BASELINE]
    ahead = [label for label in ranked if label not in plain][:count]
    return [label for label in found if label in (*plain, *ahead)]


def measure_of(comparison: pd.DataFrame) -> Measure:
    """Return the words for the error, which for text is in bits per byte."""
    return _BITS if is_text(comparison.data.iloc[0]) else _ERROR


def as_text(value: Any) -> str:
    """Return a value as messages show it; equal values give equal texts."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


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
