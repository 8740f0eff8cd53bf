"""What the numbers say, in sentences that claim no more than the intervals allow.

Arms are compared with traditional training of the same cost where that was run, seed by seed, and a
difference is called one only where its 95 % interval leaves zero out.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import pandas as pd

from selective_backprop_lab.analysis.comparison import CONTROLS, arms, length, measure_of
from selective_backprop_lab.analysis.estimates import ENOUGH_SEEDS, Estimate
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.queries import (
    BASELINE,
    at_end,
    best_traditional,
    cost_as_much,
    counted,
    final_difference,
)
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.budget import Budget

PAYS = "Does selection pay here?"
_MOST_NAMED = 4


class Difference(NamedTuple):
    """How an arm ended against another one; a row of `against_traditional`."""

    label: str
    arm: str
    length: Budget
    error: Estimate  # of its final error less the other's, over shared seeds
    verdict: str  # on which side of zero that lies
    equal: bool  # whether both cost the same: in traditional epochs, or in seconds if so budgeted
    words: str  # the difference, and what qualifies it, in brackets
    other: str


def findings(comparison: pd.DataFrame) -> dict[str, str]:
    """Return what a comparison shows: whether selection pays, each length, the controls.

    Each finding stands under the words that say what it is about.
    """
    found = {PAYS: pays_words(comparison)}
    for budget, own in groupby(against_traditional(comparison), key=lambda each: each.length):
        lead = f"At {budget}" if budget.unit == "epochs" else f"Within {budget}"
        found[lead] = _of_length(list(own))
    if len(found) > 1 and (text := _against_controls(comparison)):
        found["Against choosing at random, at equal cost"] = text
    return found


def pays_words(comparison: pd.DataFrame) -> str:
    """Say whether any arm ended lower than traditional training, and by how much.

    Each is held against the best traditional training that cost no more. Below three shared seeds
    there is no answer, but what it takes.
    """
    known, matches = counted(comparison), against_traditional(comparison)
    if BASELINE not in set(known.arm):
        return f"Cannot be said: no {BASELINE} run is finished."
    if not matches:
        return f"Cannot be said: nothing but {BASELINE} has finished a run."
    if all(match.verdict == "unknown" for match in matches):
        seeds = max(match.error.seeds for match in matches)
        if seeds >= ENOUGH_SEEDS:
            return "Cannot be said: runs diverged."
        return (
            f"Cannot be said yet: it takes {ENOUGH_SEEDS} seeds that a strategy shares with "
            f"{BASELINE}, and there {'is' if seeds == 1 else 'are'} {seeds}. Run the same with "
            f"--seeds {ENOUGH_SEEDS}: what is there is kept."
        )
    found = arms(known)
    alike = [found[match.label] for match in matches if match.equal]
    own = [_against(known, runs, best_traditional(known, runs), cost=False) for runs in alike]
    own = [match for match in own if match.verdict != "unknown"]
    if not own:
        return (
            f"Cannot be said: no strategy cost what a {BASELINE} run did, so a shorter {BASELINE} "
            "training may do as well. --budget gives all the same cost."
        )
    # What chooses at random is a control, and no answer where something else was run.
    own = [match for match in own if match.arm not in CONTROLS] or own
    own.sort(key=lambda match: match.error.mean)
    lower = [f"{match.label} {match.words}" for match in own if match.verdict == "lower"]
    if not lower:
        worse = all(match.verdict == "higher" for match in own)
        start = "No: every strategy ended above" if worse else "Not shown: none ended below"
        return (
            f"{start} the best {BASELINE} training for no more cost by more than the interval. "
            f"Nearest: {own[0].label} {own[0].words}."
        )
    fluke = " Each interval stands alone: of many, one is soon a fluke." if len(own) > 1 else ""
    return (
        f"Yes, in {len(lower)} of {len(own)} comparisons: below the best {BASELINE} training for "
        f"no more cost ended {_some(lower)}.{fluke}"
    )


def against_traditional(comparison: pd.DataFrame) -> list[Difference]:
    """Hold every other arm against traditional training of its cost, else its length, else longest.

    There is nothing to say where no traditional run is finished.
    """
    found = arms(counted(comparison))
    plain = [own for own in found.values() if own.arm.iloc[0] == BASELINE]

    def distance(own: pd.DataFrame, other: pd.DataFrame) -> tuple[bool, bool, float]:
        return (
            not cost_as_much(own, other),
            length(own) != length(other),
            -at_end(other, "cost").mean(),
        )

    return [
        _against(comparison, own, min(plain, key=lambda other: distance(own, other)))
        for own in found.values()
        if plain and own.arm.iloc[0] != BASELINE
    ]


def _against(
    comparison: pd.DataFrame, own: pd.DataFrame, other: pd.DataFrame, *, cost: bool = True
) -> Difference:
    error, equal = final_difference(own, other), cost_as_much(own, other)
    parts = ["no shared seed"]
    if error.seeds:
        parts = [f"{with_interval(error, signed=True)} {measure_of(comparison).step}"]
    if cost and not equal:
        share = at_end(own, "cost").mean() / at_end(other, "cost").mean()
        parts.append(f"at {share:.0%} of the cost")
    if other.arm.iloc[0] == BASELINE and length(other) != length(own):
        parts.append(f"against {other.label.iloc[0]}")
    return Difference(
        label=own.label.iloc[0],
        arm=own.arm.iloc[0],
        length=length(own),
        error=error,
        verdict=error.against(),
        equal=equal,
        words=f"({', '.join(parts)})",
        other=other.arm.iloc[0],
    )


def _of_length(matches: Sequence[Difference]) -> str:
    phrases = {
        "lower": "ended lower than traditional",
        "higher": "ended higher than traditional",
        "unresolved": "no difference resolved, the interval includes zero",
        "unknown": f"fewer than {ENOUGH_SEEDS} shared seeds, so no verdict",
    }
    ranked = sorted(matches, key=lambda match: match.error.mean)
    ranked.sort(key=lambda match: list(phrases).index(match.verdict))
    return _sentence((phrases[match.verdict], f"{match.arm} {match.words}") for match in ranked)


def _against_controls(comparison: pd.DataFrame) -> str:
    """Hold each method against the first control that cost the same."""
    found = arms(counted(comparison))
    controls = [own for arm in CONTROLS for own in found.values() if own.arm.iloc[0] == arm]
    matches = []
    for own in found.values():
        alike = [other for other in controls if cost_as_much(own, other)]
        if alike and own.arm.iloc[0] not in (BASELINE, *CONTROLS):
            matches.append(_against(comparison, own, alike[0]))
    phrases = {"lower": "lower than {}", "higher": "higher than {}"}
    unresolved = "no difference to {} resolved"
    return _sentence(
        (phrases.get(match.verdict, unresolved).format(match.other), f"{match.label} {match.words}")
        for match in sorted(matches, key=lambda match: match.error.mean)
        if match.verdict != "unknown"
    )


def _some(words: Sequence[str]) -> str:
    """Return the first of many in a sentence, and how many more there are."""
    more = len(words) - _MOST_NAMED
    return listed(words if more < 2 else [*words[:_MOST_NAMED], f"{more} more"])


def _sentence(said: Iterable[tuple[str, str]]) -> str:
    """Return each phrase once, with the arms of which it is said, or the first of many."""
    found: dict[str, list[str]] = {}
    for phrase, words in said:
        found.setdefault(phrase, []).append(words)
    parts = [f"{phrase}: {_some(words)}" for phrase, words in found.items()]
    return f"{'; '.join(parts)}." if parts else ""
