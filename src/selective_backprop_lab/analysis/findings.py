"""What the numbers say, in sentences that claim no more than the intervals allow.

Strategies are compared with traditional training of the same cost where that was run, seed by seed,
and a difference is called one only where its 95 % interval leaves zero out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from selective_backprop_lab.analysis.grouping import BASELINE, Comparison, RunGroup, measure_of
from selective_backprop_lab.analysis.run_summary import listed
from selective_backprop_lab.analysis.statistics import (
    ENOUGH_SEEDS,
    Estimate,
    final_estimate,
    paired_difference,
)
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.analysis.worth import WORTH, worth_words

_SAME_COST = 0.03  # share by which costs may differ and still count as equal
PAYS = "Does selection pay here?"
_MOST_NAMED = 4
_CONTROLS = ("random-scored", "random-backprop")  # the one that pays for scoring first


@dataclass(frozen=True)
class Match:
    """A group against another one: how much each cost, and by how much the errors differ."""

    group: RunGroup
    other: RunGroup

    @cached_property
    def difference(self) -> Estimate:
        """Of final errors, over shared seeds."""
        return paired_difference(self.group, self.other)

    @property
    def equal(self) -> bool:
        """Whether both cost the same: in traditional epochs, or in seconds if so budgeted."""
        if self.group.length == self.other.length and self.other.length.unit == "seconds":
            return True
        return abs(self.share - 1.0) <= _SAME_COST

    @property
    def step(self) -> str:
        """The unit of the difference."""
        return measure_of(self.group.runs[0]).step

    @property
    def share(self) -> float:
        """The group's cost as a share of the other's."""
        return self.group.cost / self.other.cost

    @property
    def verdict(self) -> str:
        """On which side of zero the difference lies."""
        return self.difference.against(0.0)

    def words(self, name: str, *, cost: bool = True) -> str:
        """Return a group's name, with the difference and what qualifies it."""
        parts = ["no shared seed"]
        if self.difference.seeds:
            parts = [f"{with_interval(self.difference, signed=True)} {self.step}"]
        if cost and not self.equal:
            parts.append(f"at {self.share:.0%} of the cost")
        if self.other.is_baseline and self.other.length != self.group.length:
            parts.append(f"against {self.other.label}")
        return f"{name} ({', '.join(parts)})"


def findings(comparison: Comparison) -> dict[str, str]:
    """Return what a comparison shows: whether selection pays, the worth, each length, the controls.

    Each finding stands under the words that say what it is about.
    """
    matches = against_traditional(comparison)
    found = {PAYS: pays_words(comparison)}
    if comparison.baseline is None or not matches:
        return found
    if said := worth_words(comparison):
        found[WORTH] = said
    for length, own in groupby(matches, key=lambda match: match.group.length):
        lead = f"At {length}" if length.unit == "epochs" else f"Within {length}"
        found[lead] = _of_length(list(own))
    if text := _against_controls([group for group in comparison.groups if group.runs]):
        found["Against choosing at random, at equal cost"] = text
    return found


def pays_words(comparison: Comparison) -> str:
    """Say whether any strategy ended lower than traditional training, and by how much.

    Each is held against the best traditional training that cost no more. Below three shared seeds
    there is no answer, but what it takes.
    """
    if comparison.baseline is None:
        return f"Cannot be said: no {BASELINE} run is finished."
    matches = against_traditional(comparison)
    if not matches:
        return f"Cannot be said: nothing but {BASELINE} has finished a run."
    if all(match.verdict == "untold" for match in matches):
        seeds = max(match.difference.seeds for match in matches)
        if seeds >= ENOUGH_SEEDS:
            return "Cannot be said: runs diverged."
        return (
            f"Cannot be said yet: it takes {ENOUGH_SEEDS} seeds that a strategy shares with "
            f"{BASELINE}, and there {'is' if seeds == 1 else 'are'} {seeds}. Run the same with "
            f"--seeds {ENOUGH_SEEDS}: what is there is kept."
        )
    told = [match for match in _for_no_more(matches, comparison) if match.verdict != "untold"]
    if not any(match.equal for match in matches) or not told:
        return (
            f"Cannot be said: no strategy cost what a {BASELINE} run did, so a shorter {BASELINE} "
            "training may do as well. --budget gives all the same cost."
        )
    # What chooses at random is a control, and no answer where something else was run.
    told = [match for match in told if match.group.name not in _CONTROLS] or told
    told.sort(key=lambda match: match.difference.mean)
    best = told[0].words(told[0].group.label, cost=False)
    lower = [match for match in told if match.verdict == "lower"]
    if not lower:
        worse = all(match.verdict == "higher" for match in told)
        start = "No: every strategy ended above" if worse else "Not shown: none ended below"
        return (
            f"{start} the best {BASELINE} training for no more cost by more than the interval. "
            f"Nearest: {best}."
        )
    named = _some([match.words(match.group.label, cost=False) for match in lower])
    fluke = " Each interval stands alone: of many, one is soon a fluke." if len(told) > 1 else ""
    return (
        f"Yes, in {len(lower)} of {len(told)} comparisons: below the best {BASELINE} training for "
        f"no more cost ended {named}.{fluke}"
    )


def _for_no_more(matches: Sequence[Match], comparison: Comparison) -> list[Match]:
    """Match strategies that cost what traditional training did with the best that cost no more."""
    found = []
    for match in matches:
        rivals = [
            other
            for group in comparison.groups
            if group.runs and group.is_baseline
            if (other := Match(match.group, group)).equal or other.share >= 1.0
        ]
        if match.equal:
            found.append(min(rivals, key=lambda each: final_estimate(each.other).mean))
    return found


def against_traditional(comparison: Comparison) -> list[Match]:
    """Match every other group with traditional training; none where there is none of that."""
    groups = [group for group in comparison.groups if group.runs]
    others = [group for group in groups if not group.is_baseline]
    return [_closest(group, groups) for group in others] if comparison.baseline else []


def _closest(group: RunGroup, groups: Sequence[RunGroup]) -> Match:
    """Match a group with traditional training of its cost, else its length, else the longest."""

    def distance(match: Match) -> tuple[bool, bool, float]:
        return not match.equal, group.length != match.other.length, -match.other.cost

    return min((Match(group, other) for other in groups if other.is_baseline), key=distance)


def _of_length(matches: Sequence[Match]) -> str:
    phrases = {
        "lower": "ended lower than traditional",
        "higher": "ended higher than traditional",
        "unresolved": "no difference resolved, the interval includes zero",
        "untold": f"fewer than {ENOUGH_SEEDS} shared seeds, so no verdict",
    }
    ranked = sorted(matches, key=lambda match: match.difference.mean)
    ranked.sort(key=lambda match: list(phrases).index(match.verdict))
    return _sentence((phrases[match.verdict], match.words(match.group.name)) for match in ranked)


def _against_controls(groups: Sequence[RunGroup]) -> str:
    """Hold each method against the first control that cost the same."""
    controls = [group for name in _CONTROLS for group in groups if group.name == name]
    found = list[Match]()
    for group in groups:
        alike = (match for other in controls if (match := Match(group, other)).equal)
        match = None if group.is_baseline or group in controls else next(alike, None)
        if match is not None and match.verdict != "untold":
            found.append(match)
    phrases = {"lower": "lower than {}", "higher": "higher than {}"}
    unresolved = "no difference to {} resolved"
    return _sentence(
        (
            phrases.get(match.verdict, unresolved).format(match.other.name),
            match.words(match.group.label),
        )
        for match in sorted(found, key=lambda match: match.difference.mean)
    )


def _some(words: Sequence[str]) -> str:
    """Return the first of many in a sentence, and how many more there are."""
    more = len(words) - _MOST_NAMED
    return listed(words if more < 2 else [*words[:_MOST_NAMED], f"{more} more"])


def _sentence(said: Iterable[tuple[str, str]]) -> str:
    """Return each phrase once, with the groups of which it is said, or the first of many."""
    found: dict[str, list[str]] = {}
    for phrase, words in said:
        found.setdefault(phrase, []).append(words)
    parts = [f"{phrase}: {_some(words)}" for phrase, words in found.items()]
    return f"{'; '.join(parts)}." if parts else ""
