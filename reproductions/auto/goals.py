"""What is asked of `auto` on a stage, and what was measured of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from reproductions.auto.protocol import OURS
from reproductions.auto.results import Results
from selective_backprop_lab.analysis.class_errors import rare_recall
from selective_backprop_lab.analysis.grouping import BASELINE
from selective_backprop_lab.analysis.run_summary import listed
from selective_backprop_lab.analysis.statistics import Axis, Estimate, by_seed, estimate
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.analysis.verdict import Finding, Verdict, is_below
from selective_backprop_lab.analysis.worth import Worth, mean_worth

LEAST, MEAN, BEST, SATURATED = 0.97, 1.5, 2.0, 1.1  # worths
REDUNDANT = ("skewed", "copies", "near-copies", "fine-tuning")
WRONG, LOWER = 0.2, 2 / 3  # share of wrong labels, and of traditional's error that is left
RELATIVE, POINTS = 0.05, 0.3  # an error at most so much higher, in both together, is level
LEVEL = 0.9  # of the cells
IN_SECONDS = 0.95  # of each worth
_MOST_NAMED = 6


@dataclass(frozen=True)
class _Cell:
    """`auto` on a workload at a length."""

    results: Results
    length: float

    @property
    def title(self) -> str:
        return f"{self.results.workload.title} at {self.length:g}"


def goals(stage: Sequence[Results]) -> Iterator[Finding]:
    """Judge all that is asked for, on the workloads on which `auto` was run."""
    cells = [
        _Cell(each, length)
        for each in stage
        for length in each.lengths
        if (OURS, length) in each.groups
    ]
    if not cells:
        return
    yield from _worths(cells, "cost", 1.0)
    yield _everywhere(
        f"nowhere above {BASELINE} beyond the interval",
        [(cell, _not_above(cell.results.difference(OURS, cell.length))) for cell in cells],
    )
    for results in stage:
        yield from _wrong_labels(results)
    rare = [cell for cell in cells if cell.results.workload.composition.skew]
    if rare:
        yield _everywhere(
            f"recall of the rarest three classes nowhere below {BASELINE}'s beyond the interval",
            [(cell, _not_above(_missed_of_the_rarest(cell))) for cell in rare],
        )
    yield _level(cells)
    yield from _worths(cells, "cpu_seconds", IN_SECONDS)


def _worths(cells: Sequence[_Cell], axis: Axis, share: float) -> Iterator[Finding]:
    """Judge worths at equal passes, or a share of what is asked there at equal CPU seconds."""
    at = "" if axis == "cost" else " at equal CPU seconds"

    def value(cell: _Cell) -> Worth:
        return cell.results.worth(OURS, cell.length, axis)

    limit = LEAST * share
    yield _everywhere(
        f"worth at least {limit:.2f} in every cell{at}",
        [(cell, value(cell).is_at_least(limit)) for cell in cells],
    )
    redundant = [c for c in cells if set(c.results.workload.kinds) & set(REDUNDANT)]
    if redundant:
        limit = MEAN * share
        kinds = [k for k in REDUNDANT if any(k in c.results.workload.kinds for c in redundant)]
        mean = mean_worth([value(cell) for cell in redundant])
        yield Finding(
            f"mean worth at least {limit:.2f} on what is {listed(kinds)}{at}",
            mean.is_at_least(limit),
            f"{mean.text}, the geometric mean of {len(redundant)} cells",
        )
        known = [cell for cell in redundant if not value(cell).reason]
        # By what it is worth at least: a worth beyond the curve may be of a hair's breadth.
        best = max(known, key=lambda cell: (value(cell).low, value(cell).times), default=None)
        if best is not None:
            limit = BEST * share
            yield Finding(
                f"worth at least {limit:.2f} in the best of these cells{at}",
                value(best).is_at_least(limit),
                f"{value(best).text} on {best.title}",
            )
    for cell in cells:
        saturated = "saturated" in cell.results.workload.kinds
        if saturated and cell.length == cell.results.lengths[-1]:
            limit = SATURATED * share
            yield Finding(
                f"worth at least {limit:.2f} on {cell.title}, saturated{at}",
                value(cell).is_at_least(limit),
                value(cell).text,
            )


def _wrong_labels(results: Results) -> Iterator[Finding]:
    if results.workload.composition.noise < WRONG or not results.lengths:
        return
    length = results.lengths[-1]
    pair = OURS, BASELINE
    mine, theirs = (results.error(arm, length) for arm in pair)
    if not mine.seeds or not theirs.seeds:
        return
    ours, usual = (by_seed(results.groups[arm, length], results.workload.measure) for arm in pair)
    yield Finding(
        f"a third below {BASELINE} on {results.workload.title} at {length:g}",
        is_below(estimate([*(ours - LOWER * usual).dropna()])),
        f"{with_interval(mine)} against {with_interval(theirs)}",
    )


def _level(cells: Sequence[_Cell]) -> Finding:
    verdicts = []
    for cell in cells:
        best = cell.results.best_rival(cell.length)
        assert best is not None  # traditional training was run at each length
        allowed = RELATIVE * cell.results.error(best, cell.length).mean + POINTS
        found = cell.results.difference(OURS, cell.length, best)
        verdicts.append((cell, is_below(found, allowed)))
    holds, fails = (
        sum(verdict is wanted for _, verdict in verdicts)
        for wanted in (Verdict.HOLDS, Verdict.FAILS)
    )
    all_told = Verdict.OPEN
    if holds >= LEVEL * len(cells):
        all_told = Verdict.HOLDS
    elif len(cells) - fails < LEVEL * len(cells):
        all_told = Verdict.FAILS
    words = (
        f"level in {holds} of {len(cells)} cells, higher in {fails}, the others unresolved; level "
        f"is up to {100 * RELATIVE:g} % and {POINTS} points above"
    )
    missed = _named(cell for cell, verdict in verdicts if verdict is Verdict.FAILS)
    if missed:
        words += f"; higher on {missed}"
    return Finding("level with the best of all others in nine cells of ten", all_told, words)


def _everywhere(claim: str, found: Sequence[tuple[_Cell, Verdict]]) -> Finding:
    """Return whether a claim holds in all cells: it fails where it does in one."""
    verdicts = [verdict for _, verdict in found]
    failed = [cell for cell, verdict in found if verdict is Verdict.FAILS]
    verdict = Verdict.HOLDS
    if failed:
        verdict = Verdict.FAILS
    elif Verdict.OPEN in verdicts:
        verdict = Verdict.OPEN
    words = f"so in {verdicts.count(Verdict.HOLDS)} of {len(found)} cells"
    if failed:
        words += f", not in {len(failed)}: {_named(failed)}"
    if opened := verdicts.count(Verdict.OPEN):
        words += f"; {opened} unresolved"
    return Finding(claim, verdict, words)


def _named(cells: Iterable[_Cell]) -> str:
    titles = [cell.title for cell in cells]
    if len(titles) > _MOST_NAMED:
        titles = [*titles[:_MOST_NAMED], f"{len(titles) - _MOST_NAMED} more"]
    return listed(titles) if titles else ""


def _not_above(found: Estimate) -> Verdict:
    """Judge that a difference is not resolved above zero; open for a single seed."""
    side = found.against()
    if side == "untold":
        return Verdict.OPEN
    return Verdict.FAILS if side == "higher" else Verdict.HOLDS


def _missed_of_the_rarest(cell: _Cell) -> Estimate:
    return cell.results.difference(OURS, cell.length, measure=lambda run: 100 - rare_recall(run))
