"""What the numbers say, in sentences that claim no more than the intervals allow.

Strategies are compared with traditional training of the same cost where that was run, seed by seed,
and a difference is called one only where its 95 % interval leaves zero out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.analysis.run_summary import listed
from selective_backprop.lab.analysis.statistics import ENOUGH_SEEDS, Estimate, paired_difference
from selective_backprop.lab.analysis.summary import WORTH, GroupRow, Summary, worth_words
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.budget import Budget

_SAME_COST = 0.03  # share by which costs may differ and still count as equal
_CONTROLS = ("random-scored", "random-backprop")  # the one that pays for scoring first


@dataclass(frozen=True)
class Finding:
    """One thing that the runs show."""

    lead: str  # what it is about
    text: str


@dataclass(frozen=True)
class Match:
    """A group against another one: how much each cost, and by how much the errors differ."""

    row: GroupRow
    other: GroupRow

    @cached_property
    def difference(self) -> Estimate:
        """Of final errors, in points, over shared seeds."""
        return paired_difference(self.row.group, self.other.group)

    @property
    def equal(self) -> bool:
        """Whether both cost the same: in traditional epochs, or in seconds if so budgeted."""
        one, two = self.row.group.length, self.other.group.length
        if one == two and one.unit == "seconds":
            return True
        return abs(self.share - 1.0) <= _SAME_COST

    @property
    def share(self) -> float:
        """The group's cost as a share of the other's."""
        return self.row.means["cost"] / self.other.means["cost"]

    @property
    def verdict(self) -> str:
        """On which side of zero the difference lies."""
        return self.difference.against(0.0)

    def words(self, name: str) -> str:
        """Return a group's name, with the difference and what qualifies it."""
        parts = ["no shared seed"]
        if self.difference.seeds:
            parts = [f"{with_interval(self.difference, signed=True)} points"]
        if not self.equal:
            parts.append(f"at {self.share:.0%} of the cost")
        other = self.other.group
        if other.is_baseline and other.length != self.row.group.length:
            parts.append(f"against {other.label}")
        return f"{name} ({', '.join(parts)})"


def findings(summary: Summary) -> list[Finding]:
    """Return what a comparison shows: the worth, the upshot, each length, and the controls."""
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
        return [Finding("Traditional training alone", "no other strategy has finished a run.")]
    found = [Finding(WORTH, worth_words(summary)), _upshot(matches)]
    for length, group in groupby(matches, key=lambda match: match.row.group.length):
        found.append(_of_length(length, list(group)))
    return [*found, *_against_controls(summary)]


def _matches(summary: Summary) -> list[Match]:
    """Match each group with traditional training of its cost, else its length, else the longest."""
    rows = [row for row in summary.rows if row.group.runs]
    theirs = [row for row in rows if row.group.is_baseline]

    def closeness(match: Match) -> tuple[bool, bool, float]:
        row, other = match.row, match.other
        return not match.equal, row.group.length != other.group.length, -other.means["cost"]

    return [
        min((Match(row, other) for other in theirs), key=closeness)
        for row in rows
        if not row.group.is_baseline
    ]


def _upshot(matches: Sequence[Match]) -> Finding:
    told = [match for match in matches if match.verdict != "untold"]
    if not told:
        return Finding(
            "No verdict",
            "with fewer than two shared seeds the spread is unknown: nothing can be told apart.",
        )
    few = any(match.difference.seeds < ENOUGH_SEEDS for match in told)
    caution = f" Fewer than {ENOUGH_SEEDS} seeds carry this: too few for a claim." if few else ""
    fair = [match for match in told if match.equal]
    if not fair:
        return Finding(
            "No comparison at equal cost",
            "no strategy cost what a traditional run did. Whether a shorter traditional training "
            f"would do as well is left open; --budget settles it.{caution}",
        )
    better = []
    for name in dict.fromkeys(match.row.group.name for match in fair):
        own = [match.verdict == "lower" for match in fair if match.row.group.name == name]
        if any(own):
            better.append(f"{name} (at {sum(own)} of {len(own)} costs)" if len(own) > 1 else name)
    if not better:
        text = "no strategy ended with a lower error than traditional training at equal cost."
        return Finding("Nothing beat traditional training", text + caution)
    return Finding(
        "Better than traditional training at equal cost",
        f"{listed(better)}. Each 95 % interval stands alone; the more strategies and budgets are "
        f"compared, the likelier one of them is a fluke.{caution}",
    )


def _of_length(length: Budget, matches: Sequence[Match]) -> Finding:
    phrases = {
        "lower": "a lower final error than traditional",
        "higher": "a higher final error than traditional",
        "unresolved": "no difference resolved, the interval includes zero",
        "untold": "too few shared seeds to tell",
    }
    parts = []
    for verdict, phrase in phrases.items():
        words = [match.words(match.row.group.name) for match in matches if match.verdict == verdict]
        if words:
            parts.append(f"{phrase}: {listed(words)}")
    lead = f"At {length.words}" if length.unit == "epochs" else f"Within {length.words}"
    return Finding(lead, "; ".join(parts) + ".")


def _against_controls(summary: Summary) -> Iterable[Finding]:
    rows = [row for row in summary.rows if row.group.runs]
    said: dict[str, list[str]] = {}
    for row in rows:
        if row.group.name in {BASELINE, *_CONTROLS}:
            continue
        match = _control_of(row, rows)
        if match is not None and match.verdict != "untold":
            phrase = f"{match.verdict} error than {match.other.group.name}"
            if match.verdict == "unresolved":
                phrase = f"no difference to {match.other.group.name} resolved"
            said.setdefault(phrase, []).append(match.words(row.group.label))
    if said:
        text = "; ".join(f"{phrase}: {listed(words)}" for phrase, words in said.items())
        yield Finding("Against choosing at random, at equal cost", text + ".")


def _control_of(row: GroupRow, rows: Sequence[GroupRow]) -> Match | None:
    """Match a group with the first control that cost the same."""
    for name in _CONTROLS:
        for other in rows:
            if other.group.name == name and (match := Match(row, other)).equal:
                return match
    return None
