"""What the numbers say, in sentences that claim no more than the intervals allow.

Arms are compared with traditional training of the same cost where that was run, seed by seed, and a
difference is called one only where its 95 % interval leaves zero out.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.run_summary import listed
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    Estimate,
    SpeedUp,
    paired_difference,
)
from selective_backprop.lab.analysis.tables import ArmRow, Summary, with_interval
from selective_backprop.lab.budget import Length

_SAME_COST = 0.03  # share by which costs may differ and still count as equal
_ENOUGH = 3  # seeds, for a claim
_CONTROLS = ("random-scored", "random-backprop")  # the one that pays for scoring first
_MOST_NAMED = 4
_SHOWN = 1.2  # the target that the text names; the table has them all


@dataclass(frozen=True)
class Finding:
    """One thing that the runs show."""

    lead: str  # what it is about
    text: str


@dataclass(frozen=True)
class Match:
    """An arm against another one: how much each cost, and by how much the errors differ."""

    row: ArmRow
    other: ArmRow
    difference: Estimate  # of final errors, in points, over shared seeds

    @property
    def equal(self) -> bool:
        """Whether both cost the same: in traditional epochs, or in seconds if so budgeted."""
        if self.row.arm.length == self.other.arm.length and self.row.arm.length.unit == "seconds":
            return True
        return abs(self.row.cost - self.other.cost) <= _SAME_COST * self.other.cost

    @property
    def verdict(self) -> str:
        """Whether the arm's error is "lower", "higher", "unresolved", or "untold" (no interval)."""
        if math.isnan(self.difference.half_width):
            return "untold"
        if self.difference.low > 0:
            return "higher"
        return "lower" if self.difference.high < 0 else "unresolved"

    def words(self, name: str) -> str:
        """Return an arm's name, with the difference and what qualifies it."""
        parts = ["no shared seed"]
        if self.difference.seeds:
            parts = [f"{with_interval(self.difference, signed=True)} points"]
        if not self.equal:
            parts.append(f"at {self.row.cost / self.other.cost:.0%} of the cost")
        if self.other.arm.is_baseline and self.other.arm.length != self.row.arm.length:
            parts.append(f"against {self.other.arm.label}")
        if self.verdict in {"lower", "higher"} and _overlap(self.row.error, self.other.error):
            parts.append("paired by seed; the two intervals by themselves overlap")
        return f"{name} ({', '.join(parts)})"


def findings(summary: Summary) -> list[Finding]:
    """Return what a comparison shows: the upshot, each length, the controls, the speed-ups."""
    if summary.comparison.baseline is None:
        return [
            Finding(
                "Nothing to compare with",
                f"there is no finished {BASELINE} run among these records, so they cannot say "
                "whether selection pays.",
            )
        ]
    matches = _matches(summary)
    if not matches:
        return [Finding("Traditional training alone", "no other arm has finished a run.")]
    found = [_upshot(matches)]
    for length, group in groupby(matches, key=lambda match: match.row.arm.length):
        found += _of_length(length, list(group))
    return [*found, *_against_controls(summary), *_sooner(summary)]


def _matches(summary: Summary) -> list[Match]:
    """Match each arm with traditional training of its cost, else its length, else the longest."""
    ours = [row for row in summary.rows if row.arm.runs and not row.arm.is_baseline]
    theirs = [row for row in summary.rows if row.arm.runs and row.arm.is_baseline]

    def closeness(row: ArmRow, other: ArmRow) -> tuple[bool, bool, float]:
        match = _match(row, other)
        return (not match.equal, row.arm.length != other.arm.length, -other.cost)

    return [
        _match(row, min(theirs, key=lambda other, row=row: closeness(row, other))) for row in ours
    ]


def _match(row: ArmRow, other: ArmRow) -> Match:
    return Match(row, other, paired_difference(row.arm, other.arm))


def _upshot(matches: Sequence[Match]) -> Finding:
    told = [match for match in matches if match.verdict != "untold"]
    if not told:
        return Finding(
            "No verdict",
            "with fewer than two shared seeds the spread is unknown: nothing can be told apart.",
        )
    few = any(match.difference.seeds < _ENOUGH for match in told)
    caution = f" Fewer than {_ENOUGH} seeds carry this: too few for a claim." if few else ""
    fair = [match for match in told if match.equal]
    if not fair:
        return Finding(
            "No comparison at equal cost",
            "no arm cost what a traditional run did. Whether a shorter traditional training would "
            f"do as well is left open; --budget settles it.{caution}",
        )
    better = _counted_by_arm(fair, "lower")
    if not better:
        text = "no arm ended with a lower error than traditional training at equal cost."
        return Finding("Nothing beat traditional training", text + caution)
    return Finding(
        "Better than traditional training at equal cost",
        f"{listed(better)}. Each 95 % interval stands alone; the more arms and budgets are "
        f"compared, the likelier one of them is a fluke.{caution}",
    )


def _counted_by_arm(matches: Sequence[Match], verdict: str) -> list[str]:
    words = []
    for name in dict.fromkeys(match.row.arm.name for match in matches):
        own = [match for match in matches if match.row.arm.name == name]
        hits = sum(match.verdict == verdict for match in own)
        if hits:
            words.append(f"{name} (at {hits} of {len(own)} costs)" if len(own) > 1 else name)
    return words


def _of_length(length: Length, matches: Sequence[Match]) -> Iterable[Finding]:
    lead = f"At {length.words}" if length.unit == "epochs" else f"Within {length.words}"
    phrases = {
        "lower": "a lower final error than traditional: ",
        "higher": "a higher one: ",
        "unresolved": "no difference resolved, the interval includes zero: ",
        "untold": "too few shared seeds to tell: ",
    }
    if not any(match.verdict == "lower" for match in matches):
        phrases["higher"] = "a higher final error than traditional: "
    parts = [
        phrase
        + listed(match.words(match.row.arm.name) for match in matches if match.verdict == verdict)
        for verdict, phrase in phrases.items()
        if any(match.verdict == verdict for match in matches)
    ]
    yield Finding(lead, "; ".join(parts) + ".")


def _against_controls(summary: Summary) -> Iterable[Finding]:
    rows = [row for row in summary.rows if row.arm.runs]
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.arm.name in {BASELINE, *_CONTROLS}:
            continue
        match = _control_of(row, rows)
        if match is not None and match.verdict != "untold":
            phrase = f"{match.verdict} error than {match.other.arm.name}"
            if match.verdict == "unresolved":
                phrase = f"no difference to {match.other.arm.name} resolved"
            groups.setdefault(phrase, []).append(match.words(row.arm.label))
    if groups:
        text = "; ".join(f"{phrase}: {listed(words)}" for phrase, words in groups.items())
        yield Finding("Against choosing at random, at equal cost", text + ".")


def _control_of(row: ArmRow, rows: Sequence[ArmRow]) -> Match | None:
    for name in _CONTROLS:
        for other in rows:
            if other.arm.name == name and (match := _match(row, other)).equal:
                return match
    return None


def _sooner(summary: Summary) -> Iterable[Finding]:
    """Say who reaches the middle target, and how much sooner than the longest traditional."""
    timed = [
        (row, speedup)
        for row in summary.rows
        for speedup in row.speedups
        if speedup.factor == _SHOWN and row.arm.runs and row.arm != summary.comparison.baseline
    ]
    if not timed:
        return
    there = [f"{row.arm.label} {_ranged(speedup)}" for row, speedup in timed if speedup.ratio]
    timeless = [row.arm.label for row, found in timed if not found.ratio and found.got_there]
    never = [row.arm.label for row, found in timed if not found.ratio and not found.got_there]
    if len(never) > _MOST_NAMED:
        never = [f"the other {len(never)}"]
    target = timed[0][1].target
    baseline = summary.comparison.baseline
    label = baseline.label if baseline else BASELINE
    text = (
        f"{AXIS_WORDS[summary.axis]} of {label} over the arm's, median seeds, above 1 is sooner: "
    )
    if there:
        text += listed(there)
    elif timeless:
        text = f"no ratio, since the median seed of {label} never got there: {listed(timeless)} did"
    else:
        text = "nobody got there with more than half of the seeds"
    if never and (there or timeless):
        text += f"; not reached by half the seeds or more: {listed(never)}"
    yield Finding(f"To {_SHOWN:g} × traditional's final error, {target:.2f} %", text + ".")


def _ranged(speedup: SpeedUp) -> str:
    if speedup.seeds == 1:
        return f"{speedup.text} (one seed)"
    if speedup.low is None or speedup.high is None:
        return speedup.text
    return f"{speedup.text} ({speedup.low:.2f} to {speedup.high:.2f} over seeds)"


def _overlap(one: Estimate, other: Estimate) -> bool:
    return one.low <= other.high and other.low <= one.high
