"""The tables of a comparison: a row for each strategy and length, a column for each measure."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from selective_backprop_lab.analysis.class_errors import (
    BINARY_MEASURES,
    CLASS_MEASURES,
    is_binary,
    is_skewed,
)
from selective_backprop_lab.analysis.grouping import Comparison, Measure, RunGroup, is_text
from selective_backprop_lab.analysis.run_summary import headline, notes
from selective_backprop_lab.analysis.statistics import (
    AXIS_WORDS,
    ENOUGH_SEEDS,
    Axis,
    SpeedUp,
    by_seed,
    common_span,
    estimate,
    final_estimate,
    mean_at_end,
    mean_error,
    paired_difference,
    resolution,
    speedups,
    training_error,
)
from selective_backprop_lab.analysis.tables import Column, Table, count, duration, with_interval
from selective_backprop_lab.analysis.worth import WORTH, worth, worth_words
from selective_backprop_lab.records.schema import Run

Columns = dict[Column, Callable[[RunGroup], str]]
_UNITS: Mapping[Axis, str] = {"seconds": "wall s", "cpu_seconds": "CPU s"}
# How expendable a column is in a narrow terminal: the factor between two others is missed least.
_FACTORS = {1.4: 6, 1.2: 3, 1.1: 0}


def comparison_table(comparison: Comparison, axis: Axis = "seconds") -> Table:
    """Return the table of a comparison: what ran and what it is worth, the rows, the notes.

    Speed-ups are measured along an axis.
    """
    title = headline(comparison)
    columns = _ends(comparison.measure, axis) | _by_class(comparison) | _speedups(comparison, axis)
    if said := worth_words(comparison):
        title += f"\n{WORTH}: {said}"
    if _has_worth(comparison):
        columns[Column("worth")] = lambda group: worth(group, comparison).text
    return _table(comparison, columns, _notes(comparison, axis), title)


def to_markdown(comparison: Comparison, axis: Axis = "seconds") -> str:
    """Return the table of a comparison in Markdown, without what it is worth."""
    columns = _ends(comparison.measure, axis) | _by_class(comparison) | _speedups(comparison, axis)
    return _table(comparison, columns, _notes(comparison, axis), headline(comparison)).to_markdown()


def numbers_table(comparison: Comparison) -> Table:
    """Return final errors, differences to traditional training, and what the runs took."""

    def difference(group: RunGroup) -> str:
        same = comparison.same_length(group)
        if same is None or same is group:
            return "–"
        return with_interval(paired_difference(group, same), signed=True)

    arm, error, *rest = _ends(comparison.measure).items()
    columns = dict([arm, error, (Column("against\ntraditional"), difference), *rest])
    notes = [
        "Means over seeds. Scored and trained count examples. Against traditional: the difference "
        f"at the end in {comparison.measure.step}, seed by seed, to traditional training of the "
        "same length."
    ]
    text = is_text(comparison.runs[0])  # whose training error is a share of bytes
    if not text and not all(math.isnan(training_error(run)) for run in comparison.runs):
        columns[Column("training\nerror %")] = lambda group: with_interval(
            estimate([*by_seed(group, training_error)])
        )
        notes.append(
            "Training error: at the end, on up to 10,000 training examples as they were trained on."
        )
    return _table(comparison, columns, notes)


def soon_table(comparison: Comparison, axis: Axis) -> Table:
    """Return worth and speed-ups, in time and in cost, and the mean error on the way."""

    def on_the_way(group: RunGroup) -> str:
        alike = [each for each in comparison.groups if each.length == group.length]
        start, end = common_span([run for each in alike for run in each.runs])
        mean = estimate([mean_error(run, start, end) for run in group.runs]).mean
        return "–" if math.isnan(mean) else f"{mean:.2f}"

    measure = comparison.measure
    columns: Columns = {Column("arm"): lambda group: group.label}
    for along in (axis, "cost"):
        unit = _UNITS.get(along, along)
        if _has_worth(comparison):
            columns[Column(f"worth\n{unit}")] = lambda group, along=along: (
                worth(group, comparison, along).text
            )
        for factor in (max(_FACTORS), min(_FACTORS)):
            columns[Column(f"to {factor:g}×\n{unit}")] = _speedup(
                comparison, along, factor, lambda speedup: speedup.with_range
            )
    columns[Column(f"mean {measure.heading}\non the way")] = on_the_way
    note = "–, since there is no finished traditional run to set the targets."
    if comparison.baseline is not None:
        error = final_estimate(comparison.baseline).mean
        note = (
            "Worth: how many times its own time or cost traditional training needs to end "
            f"where it does. To 1.4×: how many times sooner than {comparison.baseline.label} the "
            f"median seed reaches 1.4 times its final {measure.name} of "
            f"{error:.2f}{measure.unit}; small: the slowest and the fastest seed. "
            "Mean on the way: the area under it against cost, divided by the cost, over the part "
            "that all of the same length share."
        )
    return _table(comparison, columns, [note])


def records_table(comparison: Comparison) -> Table:
    """Return the records of a comparison."""
    rows = [
        (
            run.name,
            group.label,
            str(run.header.seed),
            "finished" if run.finished else "unfinished",
            run.header.started,
        )
        for group in comparison.groups
        for run in (*group.runs, *group.unfinished)
    ]
    return Table(columns=("record", "arm", "seed", "status", "started"), rows=rows)


def _table(
    comparison: Comparison, columns: Columns, notes: Sequence[str], title: str = ""
) -> Table:
    lengths = [group.length for group in comparison.groups]
    return Table(
        columns=list(columns),
        rows=[[cell(group) for cell in columns.values()] for group in comparison.groups],
        title=title,
        notes=notes,
        ruled=[i + 1 for i, (one, next_) in enumerate(pairwise(lengths)) if one != next_],
    )


def _ends(measure: Measure, axis: Axis = "seconds") -> Columns:
    """Return the columns of where runs end; a narrow terminal keeps the seconds of the axis."""

    def name(group: RunGroup) -> str:
        left_out = len(group.unfinished)
        return group.label + (f" ({left_out} unfinished)" if left_out else "")

    def mean(along: Axis, write: Callable[[float], str]) -> Callable[[RunGroup], str]:
        return lambda group: write(mean_at_end(group, along))

    return {
        Column("arm"): name,
        Column(f"final\n{measure.heading}"): lambda group: with_interval(final_estimate(group)),
        Column("scored", expendable=5): mean("scored", count),
        Column("trained"): mean("trained", count),
        Column("updates", expendable=2): mean("updates", count),
        Column("cost\nepochs", expendable=4): mean("cost", duration),
        Column("wall\ns", expendable=int(axis == "cpu_seconds")): mean("seconds", duration),
        Column("CPU\ns", expendable=int(axis != "cpu_seconds")): mean("cpu_seconds", duration),
    }


def _by_class(comparison: Comparison) -> Columns:
    """Return the columns of measures by class where data are skewed, of two classes, of text."""

    def cell(measure: Callable[[Run], float]) -> Callable[[RunGroup], str]:
        return lambda group: with_interval(estimate([*by_seed(group, measure)]))

    shown = CLASS_MEASURES if any(map(is_skewed, comparison.runs)) else {}
    if any(map(is_binary, comparison.runs)):
        shown = {**shown, **BINARY_MEASURES}
    return {Column(name, expendable=7): cell(measure) for name, measure in shown.items()}


def _speedups(comparison: Comparison, axis: Axis) -> Columns:
    return {
        Column(f"to\n{factor:g}×", expendable=expendable): _speedup(
            comparison, axis, factor, lambda speedup: speedup.text
        )
        for factor, expendable in _FACTORS.items()
    }


def _speedup(
    comparison: Comparison, axis: Axis, factor: float, write: Callable[[SpeedUp], str]
) -> Callable[[RunGroup], str]:
    def cell(group: RunGroup) -> str:
        if comparison.baseline is None:
            return "–"
        [found] = speedups(group, comparison.baseline, factors=[factor], axis=axis)
        return write(found)

    return cell


def _has_worth(comparison: Comparison) -> bool:
    return any(not worth(group, comparison).reason for group in comparison.groups)


def _notes(comparison: Comparison, axis: Axis) -> list[str]:
    measure = comparison.measure
    lines = [
        f"Final {measure.name}: mean of the last tenth of the evaluations; ± 95 % t-interval over "
        "seeds. Scored and trained: examples. Cost: scoring 1, training 3 per example, in passes "
        "of traditional training. Times leave evaluation out."
    ]
    if any(0 < len(group.runs) < ENOUGH_SEEDS for group in comparison.groups):
        lines.append(f"Below {ENOUGH_SEEDS} seeds there is no interval, and no verdict.")
    if least := resolution(comparison.runs):
        lines.append(f"One test example makes {least:.2g} points; no interval is narrower.")
    if any(map(is_skewed, comparison.runs)):
        lines.append(
            "Classes are skewed: as it comes, the error with each class weighed by its share of "
            "the training data, by the right labels; macro-recall, the mean over classes of the "
            "share that is recognised; rarest three, the same of the three rarest in training."
        )
    if any(map(is_binary, comparison.runs)):
        lines.append(
            "Log-loss: mean cross-entropy on the test set, in nats. Area under curve: how often "
            "a test example of the second class gets a higher score than one of the first."
        )
    if is_text(comparison.runs[0]):
        lines.append(
            "Bits per byte: the mean cross-entropy of held-out bytes, each after those before it "
            "in its window, over ln 2."
        )
    if comparison.baseline is not None:
        error = final_estimate(comparison.baseline).mean
        lines.append(
            f"to 1.1×: how much sooner, in {AXIS_WORDS[axis]}, the median seed reaches 1.1 times "
            f"the final {measure.name} of {comparison.baseline.label} "
            f"({error:.2f}{measure.unit}); never: half the seeds or more did not."
        )
    return [*lines, *notes(comparison)]
