"""What the numbers say, in sentences that claim no more than the intervals allow.

Strategies are compared with traditional training of the same cost where that was run, seed by seed,
and a difference is called one only where its 95 % interval leaves zero out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from selective_backprop.lab.analysis.grouping import BASELINE, Comparison, RunGroup
from selective_backprop.lab.analysis.run_summary import listed
from selective_backprop.lab.analysis.statistics import ENOUGH_SEEDS, Estimate, paired_difference
from selective_backprop.lab.analysis.tables import with_interval
from selective_backprop.lab.analysis.worth import WORTH, worth_words

_SAME_COST = 0.03  # share by which costs may differ and still count as equal
_CONTROLS = ("random-scored", "random-backprop")  # the one that pays for scoring first


@dataclass(frozen=True)
class Match:
    """A group against another one: how much each cost, and by how much the errors differ."""

    group: RunGroup
    other: RunGroup

    @cached_property
    def difference(self) -> Estimate:
        """Of final errors, in points, over shared seeds."""
        return paired_difference(self.group, self.other)

    @property
    def equal(self) -> bool:
        """Whether both cost the same: in traditional epochs, or in seconds if so budgeted."""
        if self.group.length == self.other.length and self.other.length.unit == "seconds":
            return True
        return abs(self.share - 1.0) <= _SAME_COST

    @property
    def share(self) -> float:
        """The group's cost as a share of the other's."""
        return self.group.cost / self.other.cost

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
        if self.other.is_baseline and self.other.length != self.group.length:
            parts.append(f"against {self.other.label}")
        return f"{name} ({', '.join(parts)})"


def findings(comparison: Comparison) -> dict[str, str]:
    """Return what a comparison shows: the worth, the upshot, each length, and the controls.

    Each finding stands under the words that say what it is about.
    """
    if comparison.baseline is None:
        return {
            "Nothing to compare with": f"there is no finished {BASELINE} run among these records, "
            "so they cannot say whether selection pays."
        }
    groups = [group for group in comparison.groups if group.runs]
    matches = [_closest(group, groups) for group in groups if not group.is_baseline]
    if not matches:
        return {"Traditional training alone": "no other strategy has finished a run."}
    found = {WORTH: worth_words(comparison)} | _upshot(matches)
    for length, own in groupby(matches, key=lambda match: match.group.length):
        lead = f"At {length.words}" if length.unit == "epochs" else f"Within {length.words}"
        found[lead] = _of_length(list(own))
    if text := _against_controls(groups):
        found["Against choosing at random, at equal cost"] = text
    return found


def _closest(group: RunGroup, groups: Sequence[RunGroup]) -> Match:
    """Match a group with traditional training of its cost, else its length, else the longest."""

    def distance(match: Match) -> tuple[bool, bool, float]:
        return not match.equal, group.length != match.other.length, -match.other.cost

    return min((Match(group, other) for other in groups if other.is_baseline), key=distance)


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
            verdicts.setdefault(match.group.name, []).append(match.verdict)
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
    return _sentence((phrases[match.verdict], match.words(match.group.name)) for match in ranked)


def _against_controls(groups: Sequence[RunGroup]) -> str:
    """Hold each method against the first control that cost the same."""
    controls = [group for name in _CONTROLS for group in groups if group.name == name]
    said = []
    for group in groups:
        alike = (match for other in controls if (match := Match(group, other)).equal)
        match = None if group.is_baseline or group in controls else next(alike, None)
        if match is not None and match.verdict != "untold":
            phrase = f"{match.verdict} error than {match.other.name}"
            if match.verdict == "unresolved":
                phrase = f"no difference to {match.other.name} resolved"
            said.append((phrase, match.words(group.label)))
    return _sentence(said)


def _sentence(said: Iterable[tuple[str, str]]) -> str:
    """Return each phrase once, with all groups of which it is said."""
    found: dict[str, list[str]] = {}
    for phrase, words in said:
        found.setdefault(phrase, []).append(words)
    parts = [f"{phrase}: {listed(words)}" for phrase, words in found.items()]
    return f"{'; '.join(parts)}." if parts else ""
