"""The table of a comparison: a row for each arm and length, a column for each measure."""

import math
import statistics
from collections.abc import Callable
from itertools import pairwise

import pandas as pd

from selective_backprop_lab.analysis.class_errors import (
    BINARY_MEASURES,
    CLASS_MEASURES,
    is_binary,
    is_skewed,
)
from selective_backprop_lab.analysis.comparison import arms, baseline, length, measure_of
from selective_backprop_lab.analysis.curves import AXIS_WORDS
from selective_backprop_lab.analysis.estimates import ENOUGH_SEEDS, estimate
from selective_backprop_lab.analysis.facts import headline, notes
from selective_backprop_lab.analysis.queries import (
    at_end,
    counted,
    final_error,
    reached,
    resolution,
)
from selective_backprop_lab.analysis.tables import Column, Table, count, duration, with_interval
from selective_backprop_lab.records.frame import each_run, is_text, runs_of

# What stands in a cell, of an arm's finished runs at one length.
Columns = dict[Column, Callable[[pd.DataFrame], str]]
# How expendable a column is in a narrow terminal: the factor between two others is missed least.
_FACTORS = {1.4: 6, 1.2: 3, 1.1: 0}


def comparison_table(comparison: pd.DataFrame, axis: str = "seconds") -> Table:
    """Return the table of a comparison: what ran, the rows, the notes.

    Speed-ups are measured along an axis.
    """
    columns = _ends(comparison, axis) | _by_class(comparison)
    plain = baseline(comparison)
    for factor, expendable in _FACTORS.items():
        columns[Column(f"to\n{factor:g}×", expendable=expendable)] = lambda runs, factor=factor: (
            speed_up(runs, plain, factor, axis)
        )
    found, rows = arms(comparison), []
    for label, own in found.items():
        known = counted(own)
        left_out = len(runs_of(own)) - known.seed.nunique()
        name = label + (f" ({left_out} unfinished)" if left_out else "")
        rows.append([name, *(cell(known) for cell in columns.values())])
    lengths = [length(own) for own in found.values()]
    return Table(
        columns=["arm", *columns],
        rows=rows,
        title=headline(comparison),
        notes=_notes(comparison, axis),
        ruled=[i + 1 for i, (one, next_) in enumerate(pairwise(lengths)) if one != next_],
    )


def records_table(comparison: pd.DataFrame) -> Table:
    """Return the records of a comparison."""
    rows = [
        (
            run.run,
            run.label,
            str(run.seed),
            "finished" if run.finished else "unfinished",
            run.started,
        )
        for run in each_run(comparison)
    ]
    return Table(columns=("record", "arm", "seed", "status", "started"), rows=rows)


def speed_up(runs: pd.DataFrame, plain: pd.DataFrame, factor: float, axis: str) -> str:
    """Say how many times sooner than traditional runs reach a multiple of its final error.

    That is the ratio of the medians over seeds; a seed that never got there counts as infinitely
    late, so that an arm of which half the seeds or more never got there has no speed-up.
    """
    if runs.empty or plain.empty:
        return "–"
    target = factor * final_error(plain).mean
    times = reached(runs, target, axis)
    time, reference = (statistics.median(each) for each in (times, reached(plain, target, axis)))
    arrived, seeds = int(times.lt(math.inf).sum()), len(times)
    partly = f" ({arrived} of {seeds})" if 0 < arrived < seeds else ""
    if 0 < time < math.inf and reference < math.inf:
        return f"{reference / time:.2f}×{partly}"
    # Where most got there and there is no ratio, it is traditional that never did.
    return "–" if 2 * arrived > seeds else f"never{partly}"


def _ends(comparison: pd.DataFrame, axis: str = "seconds") -> Columns:
    """Return the columns of where runs end; a narrow terminal keeps the seconds of the axis."""

    def mean(along: str, write: Callable[[float], str]) -> Callable[[pd.DataFrame], str]:
        return lambda runs: write(at_end(runs, along).mean())

    return {
        Column(f"final\n{measure_of(comparison).heading}"): lambda runs: with_interval(
            final_error(runs)
        ),
        Column("scored", expendable=5): mean("scored", count),
        Column("trained"): mean("trained", count),
        Column("updates", expendable=2): mean("updates", count),
        Column("cost\nepochs", expendable=4): mean("cost", duration),
        Column("wall\ns", expendable=int(axis == "cpu_seconds")): mean("seconds", duration),
        Column("CPU\ns", expendable=int(axis != "cpu_seconds")): mean("cpu_seconds", duration),
    }


def _by_class(comparison: pd.DataFrame) -> Columns:
    """Return the columns of measures by class where data are skewed, and of two classes."""
    shown = CLASS_MEASURES if is_skewed(comparison) else {}
    if is_binary(comparison):
        shown = {**shown, **BINARY_MEASURES}
    return {
        Column(name, expendable=7): lambda runs, measure=measure: with_interval(
            estimate([*measure(runs)])
        )
        for name, measure in shown.items()
    }


def _notes(comparison: pd.DataFrame, axis: str) -> list[str]:
    measure = measure_of(comparison)
    lines = [
        f"Final {measure.name}: mean of the last tenth of the evaluations; ± 95 % t-interval over "
        "seeds. Scored and trained: examples. Cost: scoring 1, training 3 per example, in passes "
        "of traditional training. Times leave evaluation out."
    ]
    known, plain = counted(comparison), baseline(comparison)
    if any(known.groupby("label").seed.nunique() < ENOUGH_SEEDS):
        lines.append(f"Below {ENOUGH_SEEDS} seeds there is no interval, and no verdict.")
    if least := resolution(known):
        lines.append(f"One test example makes {least:.2g} points; no interval is narrower.")
    if is_skewed(comparison):
        lines.append(
            "Classes are skewed: as it comes, the error with each class weighed by its share of "
            "the training data, by the right labels; macro-recall, the mean over classes of the "
            "share that is recognised; rarest three, the same of the three rarest in training."
        )
    if is_binary(comparison):
        lines.append(
            "Log-loss: mean cross-entropy on the test set, in nats. Area under curve: how often "
            "a test example of the second class gets a higher score than one of the first."
        )
    if is_text(comparison.data.iloc[0]):
        lines.append(
            "Bits per byte: the mean cross-entropy of held-out bytes, each after those before it "
            "in its window, over ln 2."
        )
    if len(plain):
        error = final_error(plain).mean
        lines.append(
            f"to 1.1×: how much sooner, in {AXIS_WORDS[axis]}, the median seed reaches 1.1 times "
            f"the final {measure.name} of {plain.label.iloc[0]} "
            f"({error:.2f}{measure.unit}); never: half the seeds or more did not."
        )
    return [*lines, *notes(comparison)]
