"""What a comparison shows: which arms gain, in words, and what to do next.

The gain of an arm at a length is its final error minus its rival's, seed by seed. The rival is the
best traditional training of any length up to the same cost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd

from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.comparison import CONTROLS, arms, length, measure_of
from selective_backprop_lab.analysis.estimates import ENOUGH_SEEDS, VERDICTS, Estimate, holm
from selective_backprop_lab.analysis.facts import data_words, listed
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.strategies import BOUNDS

_MOST_NAMED = 4


@dataclass(frozen=True)
class Gain:
    """How an arm at one length ended, compared with its rival."""

    runs: pd.DataFrame
    rival: pd.DataFrame  # without rows if no traditional training cost as much as the arm
    change: Estimate  # final error minus the rival's
    verdict: str  # one of `VERDICTS`; empty if too few seeds are shared

    @property
    def label(self) -> str:
        """The arm, with its length if there are several."""
        return self.runs.label.iloc[0]

    @property
    def arm(self) -> str:
        """The strategy."""
        return self.runs.arm.iloc[0]


def gains(comparison: pd.DataFrame) -> list[Gain]:
    """Return the gain of every arm except traditional, at each of its lengths."""
    known = queries.counted(comparison)
    plain = [*arms(known[known.arm == queries.BASELINE]).values()]
    found = []
    for own in arms(known[known.arm != queries.BASELINE]).values():
        # Without one of the same cost, a longer traditional training might have been better.
        fair = any(queries.cost_as_much(own, other) for other in plain)
        rival = queries.best_traditional(known, own) if fair else known[:0]
        found.append((own, rival, queries.final_difference(own, rival)))
    sides = holm([change for *_, change in found])
    return [Gain(*each, VERDICTS.get(side, "")) for each, side in zip(found, sides, strict=True)]


class Conclusion(NamedTuple):
    """What a comparison shows, for somebody who has read nothing else."""

    pays: str  # whether selection pays: Yes, No, Not shown or Cannot be said
    text: str
    todo: str  # what to run next; empty if more runs would not change the conclusion


def conclusion(comparison: pd.DataFrame) -> Conclusion:
    """Say where the best plain training and the best arm end, and whether the arm gains.

    The best arm has the lowest final error of those that gain, at the least cost at which it gains,
    or is nearest to a gain.
    """
    judged = _answering(gains(comparison))
    why, todo = _unanswered(comparison, judged)
    known = [each for each in judged if math.isfinite(each.change.mean)]
    if not known:
        return Conclusion("Cannot be said", why, todo)
    best, plain = _best(known), _by_length(comparison, queries.BASELINE)
    ends = f"{_error(best.runs)} after {length(best.runs)}"
    ends += f" ({with_interval(best.change, signed=True)} {measure_of(comparison).step})"
    if why:
        pays, said = "Cannot be said", f"{best.arm} ends at {ends}. {why}"
    elif best.verdict == "gains":
        pays, said = "Yes", f"{best.arm} gains: it ends at {ends}{_of_others(known, best)}."
        said += _when_longer(comparison, best, plain)
    else:
        pays = "No" if all(each.verdict == "loses" for each in known) else "Not shown"
        said = f"{best.arm} {_verb(best)}: it ends at {ends}."
        if len({each.arm for each in judged}) > 1:
            said = "Every strategy loses" if pays == "No" else "No strategy gains"
            said += f"; the nearest is {best.arm}, which ends at {ends}."
    text = f"On {data_words(comparison)}, plain training {_of_plain(best, plain)}. {said}"
    if apart := [each.label for each in judged if each.rival.empty]:
        text += f" Left out: {_some(apart)}, because no plain training cost as much."
    return Conclusion(pays, text, todo or _next_step(known, best, plain))


def _best(known: Sequence[Gain]) -> Gain:
    gaining = [each for each in known if each.verdict == "gains"]
    if not gaining:
        return min(known, key=lambda each: each.change.mean)
    lowest = min(gaining, key=lambda each: queries.final_error(each.runs).mean).arm
    same = [each for each in gaining if each.arm == lowest]
    return min(same, key=lambda each: queries.cost_of(each.runs))


def _next_step(known: Sequence[Gain], best: Gain, plain: Sequence[pd.DataFrame]) -> str:
    shortest = length(plain[0])
    if best.verdict == "gains" and length(best.rival) == shortest:
        half = replace(shortest, value=shortest.value / 2).short.replace(" ", "")
        return f"add --budget {half}: plain training may end lower if it stops earlier."
    # The interval leaves 0 out, but not after Holm's correction.
    if any(each.verdict == "level" and each.change.against() != "unresolved" for each in known):
        more = 2 * max(each.change.seeds for each in known)
        return f"run more seeds (--seeds {more}): with {len(known)} gains, more stay level."
    return ""


def _answering(judged: list[Gain]) -> list[Gain]:
    """Return the gains that say whether selection pays; controls count only without others."""
    taken = [each for each in judged if each.arm not in BOUNDS]
    return [each for each in taken if each.arm not in CONTROLS] or taken


def _unanswered(comparison: pd.DataFrame, judged: Sequence[Gain]) -> tuple[str, str]:
    """Return why there is no verdict at all, and what to do; empty if there is a verdict."""
    if not _by_length(comparison, queries.BASELINE):
        why = f"There is no verdict: no run of plain training ({queries.BASELINE}) is finished."
        return why, f"run it as well (--strategies {queries.BASELINE},…); finished runs are kept."
    if not judged:
        return f"There is no verdict: nothing but {queries.BASELINE} has finished a run.", ""
    if all(each.rival.empty for each in judged):
        why = f"There is no verdict: no {queries.BASELINE} run cost as much as a strategy did."
        return why, "give all strategies the same cost, such as --budget 8."
    seeds = max(each.change.seeds for each in judged)
    if seeds < ENOUGH_SEEDS:
        shared = f"{seeds or 'no'} shared seed{'' if seeds == 1 else 's'}"
        why = f"With {shared} there is no verdict; a verdict takes {ENOUGH_SEEDS}."
        return why, f"run the same with --seeds {ENOUGH_SEEDS}; finished runs are kept."
    if not any(each.verdict for each in judged):
        return "There is no verdict: runs diverged.", "try a lower learning rate, --lr."
    return "", ""


def _of_plain(best: Gain, plain: Sequence[pd.DataFrame]) -> str:
    ends, after = _error(best.rival), length(best.rival)
    if len(plain) == 1:
        return f"ends at {ends} after {after}"
    lowest = min(plain, key=lambda own: queries.final_error(own).mean)
    own = length(best.runs)
    upto = own if own.unit == "cost" else f"{queries.cost_of(best.runs):.3g} passes"
    part = "" if length(lowest) == after else f"of up to {upto} "
    return f"{part}does best after {after}: {ends}"


def _of_others(known: Sequence[Gain], best: Gain) -> str:
    own = [each for each in known if each.arm == best.arm and each.verdict in ("level", "loses")]
    said = [f"after {length(each.runs)} it {_verb(each)}" for each in own]
    gaining = dict.fromkeys(each.arm for each in known if each.verdict == "gains")
    others = [arm for arm in gaining if arm != best.arm]
    text = f"; {listed(said)}" if said else ""
    return text + (f". Others that gain: {_some(others)}" if others else "")


def _when_longer(comparison: pd.DataFrame, best: Gain, plain: Sequence[pd.DataFrame]) -> str:
    if _gets_worse(plain) and _gets_worse(_by_length(comparison, best.arm)) is False:
        return f" Unlike plain training, {best.arm} does not get worse when trained for longer."
    longest, own = queries.cost_of(plain[-1]), queries.cost_of(best.runs)
    if (
        length(best.runs).unit == "seconds"
        or longest <= own
        or queries.cost_as_much(plain[-1], best.runs)
    ):
        return ""
    passes = queries.passes_to(comparison, queries.final_error(best.runs).mean)
    if passes is None:
        return f" Plain training does not end as low within {longest:.3g} passes."
    return f" Plain training needs {passes / own:.1f} times the passes to end as low."


def _gets_worse(lengths: Sequence[pd.DataFrame]) -> bool | None:
    """Whether the longest training ends higher than a shorter one; None if that is unknown."""
    *shorter, longest = lengths
    sides = {queries.final_difference(longest, own).against() for own in shorter}
    return None if not sides or "unknown" in sides else "higher" in sides


def _by_length(comparison: pd.DataFrame, arm: str) -> list[pd.DataFrame]:
    known = queries.counted(comparison)
    return sorted(arms(known[known.arm == arm]).values(), key=queries.cost_of)


def _verb(each: Gain) -> str:
    return "is level" if each.verdict == "level" else each.verdict


def _error(runs: pd.DataFrame) -> str:
    measure = measure_of(runs)
    return f"{queries.final_error(runs).mean:.2f}{measure.unit} {measure.name}"


def _some(words: Sequence[str]) -> str:
    more = len(words) - _MOST_NAMED
    return listed(words if more < 2 else [*words[:_MOST_NAMED], f"{more} more"])
