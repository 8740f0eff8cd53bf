"""The table of a comparison: a row for each arm and length, a column for each measure."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pandas as pd

from selective_backprop_lab.analysis import estimates, queries
from selective_backprop_lab.analysis.comparison import Measure, arms, length, measure_of
from selective_backprop_lab.analysis.facts import headline, listed, notes
from selective_backprop_lab.analysis.findings import Gain, gains, tests
from selective_backprop_lab.analysis.tables import Column, Table, count, duration, with_interval
from selective_backprop_lab.records.frame import runs_of

# For each column, a function that returns the text of a cell for an arm's finished runs.
Columns = dict[Column, Callable[[pd.DataFrame], str]]

MEANINGS = {  # of columns that only some tables have
    "as it comes %": "the error if classes were as frequent as in training, by the right labels.",
    "macro- recall %": "the share of a class that is recognised, as a mean over classes.",
    "rarest three %": "the same, over the three classes that are rarest in training.",
    "log-loss × 100": "mean cross-entropy on the test set, in nats.",
    "area under curve %": "how often an example of the second class outscores one of the first.",
}


def comparison_table(comparison: pd.DataFrame, axis: str = "seconds") -> Table:
    """Return the table of a comparison; a narrow terminal keeps only the seconds of the axis."""
    judged = gains(comparison)
    columns: Columns = {
        Column(f"final\n{measure_of(comparison).heading}"): lambda runs: with_interval(
            queries.final_error(runs)
        ),
        **_gains(comparison, judged),
        **_costs(comparison, axis),
        **_by_class(comparison),
    }
    found, rows = arms(comparison), []
    for label, own in found.items():
        known = queries.counted(own)
        left_out = len(runs_of(own)) - known.seed.nunique()
        name = label + (f" ({left_out} unfinished)" if left_out else "")
        rows.append([name, *(cell(known) if len(known) else "–" for cell in columns.values())])
    lengths = [length(own) for own in found.values()]
    at = f"strategy @ {lengths[0].noun}" if len({*lengths}) > 1 else "strategy"
    return Table(
        columns=[at, *columns],
        rows=rows,
        title=headline(comparison),
        notes=_notes(comparison, judged),
        ruled=[i + 1 for i, (one, next_) in enumerate(pairwise(lengths)) if one != next_],
    )


def records_table(comparison: pd.DataFrame) -> Table:
    """Return the records of a comparison."""
    runs = runs_of(comparison)
    status = runs.finished.map({True: "finished", False: "unfinished"})
    shown = runs.assign(status=status)[["run", "label", "seed", "status", "started"]].astype(str)
    return Table(("record", "strategy", *shown.columns[2:]), shown.to_numpy().tolist())


def _gains(comparison: pd.DataFrame, judged: Sequence[Gain]) -> Columns:
    of = {each.label: each for each in judged}
    known = queries.counted(comparison)
    plain = known[known.arm == queries.BASELINE]
    if plain.empty or not judged:
        return {}

    def cell(write: Callable[[Gain], str]) -> Callable[[pd.DataFrame], str]:
        def written(runs: pd.DataFrame) -> str:
            each = of.get(runs.label.iloc[0])
            return "" if each is None else write(each) or "–"

        return written

    gain = cell(lambda each: with_interval(each.change, signed=True))
    columns = {Column(f"gain\n{measure_of(comparison).step}"): gain}
    if any(len(each.rival) and length(each.rival) != length(each.runs) for each in judged):
        rival = cell(lambda each: str(length(each.rival)) if len(each.rival) else "")
        columns[Column("over plain\ntraining of", expendable=2)] = rival
    columns[Column("verdict")] = cell(lambda each: each.verdict)
    if any(each.adds for each in judged):
        adds = cell(lambda each: each.adds.cell if each.adds else "")
        columns[Column("of this by\nselection", expendable=8)] = adds
    return columns


def _costs(comparison: pd.DataFrame, axis: str) -> Columns:
    def mean(along: str, write: Callable[[float], str]) -> Callable[[pd.DataFrame], str]:
        return lambda runs: write(queries.last(runs)[along].mean())

    cpu = 6 if axis == "cpu_seconds" else 1
    ends = queries.counted(comparison).drop_duplicates(["label", "seed"], keep="last")
    planned = ends.length.where(ends.unit == "cost")  # a row's name says it
    cost = {Column("cost\npasses", expendable=5): mean("cost", duration)}
    return {
        **({} if ((ends.cost - planned).abs() <= 0.01 * planned).all() else cost),
        Column("scored", expendable=3): mean("scored", count),
        Column("trained", expendable=4): mean("trained", count),
        Column("wall\ns", expendable=7 - cpu): mean("seconds", duration),
        Column("CPU\ns", expendable=cpu): mean("cpu_seconds", duration),
    }


def _by_class(comparison: pd.DataFrame) -> Columns:
    shown = queries.CLASS_MEASURES if queries.is_skewed(comparison) else {}
    if queries.is_binary(comparison):
        shown = {**shown, **queries.BINARY_MEASURES}
    return {
        Column(name, expendable=7): lambda runs, measure=measure: with_interval(
            estimates.estimate([*measure(runs)])
        )
        for name, measure in shown.items()
    }


def _power(judged: Sequence[Gain], together: int, measure: Measure) -> str:
    sizes = [estimates.detectable(each.change, together) for each in judged]
    seeds = [
        estimates.seeds_to_find(0.5 * queries.final_error(each.rival).mean, each.change, together)
        for each in judged
    ]
    spread = " to ".join(dict.fromkeys(f"{size:.2g}" for size in (min(sizes), max(sizes))))
    number = f"over {estimates.MOST_SEEDS}" if None in seeds else max(filter(None, seeds))
    corrected = f", depending on the strategy (Holm's correction for {together} verdicts included)"
    return (
        f"Power: four of five such comparisons would find a difference of {spread} {measure.step}"
        f"{corrected * (together > 1)}. {number} seeds would show a halved {measure.name}."
    )


def _notes(comparison: pd.DataFrame, judged: Sequence[Gain]) -> list[str]:
    measure, known, lines = measure_of(comparison), queries.counted(comparison), list[str]()
    if decided := [each for each in judged if each.verdict]:
        lines.append(_power(decided, tests(judged), measure))
    without = [each.label for each in judged if each.rival.empty]
    if 0 < len(without) < len(judged):
        lines.append(f"No gain of {listed(without)}: no {queries.BASELINE} run cost as much.")
    if any(known.groupby("label").seed.nunique() < (few := estimates.ENOUGH_SEEDS)):
        lines.append(f"With fewer than {few} seeds there is no interval and no verdict.")
    if least := queries.resolution(known):
        lines.append(f"One test example is {least:.2g} points; intervals are at least as wide.")
    return [*lines, *notes(comparison)]
