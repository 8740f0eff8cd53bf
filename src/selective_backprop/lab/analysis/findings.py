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

_SAME_COST = 0.03  # share by which costs may differ and still count as equal
_CONTROLS = ("random-scored", "random-backprop")  # the one that pays for scoring first


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


def findings(summary: Summary) -> dict[str, str]:
    """Return what a comparison shows: the worth, the upshot, each length, and the controls.

    Each finding stands under the words that say what it is about.
    """
    if summary.comparison.baseline is None:
        return {
            "Nothing to compare with": f"there is no finished {BASELINE} run among these records, "
            "so they cannot say whether selection pays."
        }
    rows = [row for row in summary.rows if row.group.runs]
    matches = [_closest(row, rows) for row in rows if not row.group.is_baseline]
    if not matches:
        return {"Traditional training alone": "no other strategy has finished a run."}
    found = {WORTH: worth_words(summary)} | _upshot(matches)
    for length, group in groupby(matches, key=lambda match: match.row.group.length):
        lead = f"At {length.words}" if length.unit == "epochs" else f"Within {length.words}"
        found[lead] = _of_length(list(group))
    if text := _against_controls(rows):
        found["Against choosing at random, at equal cost"] = text
    return found


def _closest(row: GroupRow, rows: Sequence[GroupRow]) -> Match:
    """Match a group with traditional training of its cost, else its length, else the longest."""

    def distance(match: Match) -> tuple[bool, bool, float]:
        other = match.other
        return not match.equal, row.group.length != other.group.length, -other.means["cost"]

    return min((Match(row, other) for other in rows if other.group.is_baseline), key=distance)


def _upshot(matches: Sequence[Match]) -> dict[str, str]:
    told = [match for match in matches if match.verdict != "untold"]
    if not told:
        text = "with fewer than two shared seeds the spread is unknown: nothing can be told apart."
        return {"No verdict": text}
    few = any(match.difference.seeds < ENOUGH_SEEDS for match in told)
    caution = f" Fewer than {ENOUGH_SEEDS} seeds carry this: too few for a claim." if few else ""
    verdicts: dict[str, list[str]] = {}
    for match in told:
        if match.equal:
            verdicts.setdefault(match.row.group.name, []).append(match.verdict)
    if not verdicts:
        return {
            "No comparison at equal cost": "no strategy cost what a traditional run did. Whether a "
            "shorter traditional training would do as well is left open; --budget settles it."
            + caution
        }
    better = [
        f"{name} (at {own.count('lower')} of {len(own)} costs)" if len(own) > 1 else name
        for name, own in verdicts.items()
        if "lower" in own
    ]
    if not better:
        text = "no strategy ended with a lower error than traditional training at equal cost."
        return {"Nothing beat traditional training": text + caution}
    return {
        "Better than traditional training at equal cost": f"{listed(better)}. Each 95 % interval "
        "stands alone; the more strategies and budgets are compared, the likelier one of them is a "
        f"fluke.{caution}"
    }


def _of_length(matches: Sequence[Match]) -> str:
    phrases = {
        "lower": "a lower final error than traditional",
        "higher": "a higher final error than traditional",
        "unresolved": "no difference resolved, the interval includes zero",
        "untold": "too few shared seeds to tell",
    }
    ranked = sorted(matches, key=lambda match: list(phrases).index(match.verdict))
    return _sentence(
        (phrases[match.verdict], match.words(match.row.group.name)) for match in ranked
    )


def _against_controls(rows: Sequence[GroupRow]) -> str:
    """Hold each method against the first control that cost the same."""
    said = []
    for row in rows:
        controls = (
            match
            for name in _CONTROLS
            for other in rows
            if other.group.name == name and (match := Match(row, other)).equal
        )
        match = None if row.group.name in {BASELINE, *_CONTROLS} else next(controls, None)
        if match is not None and match.verdict != "untold":
            phrase = f"{match.verdict} error than {match.other.group.name}"
            if match.verdict == "unresolved":
                phrase = f"no difference to {match.other.group.name} resolved"
            said.append((phrase, match.words(row.group.label)))
    return _sentence(said)


def _sentence(said: Iterable[tuple[str, str]]) -> str:
    """Return each phrase once, with all groups of which it is said."""
    found: dict[str, list[str]] = {}
    for phrase, words in said:
        found.setdefault(phrase, []).append(words)
    parts = [f"{phrase}: {listed(words)}" for phrase, words in found.items()]
    return f"{'; '.join(parts)}." if parts else ""
