"""What a comparison shows: which arms gain, in words, and what to do next.

The gain of an arm at a length is its final error minus its rival's, seed by seed. The rival is the
best traditional training of any length up to the same cost. An arm with treatments, such as
`auto+smoothing-0.3`, is also compared with traditional training with the same treatments.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd

from selective_backprop_lab.analysis import estimates, queries
from selective_backprop_lab.analysis.comparison import CONTROLS, arms, length, lengths, measure_of
from selective_backprop_lab.analysis.facts import data_words, listed
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.strategies import BOUNDS

_MOST_NAMED = 4
_LEAST = 2.0  # passes; nobody is advised to train for less, where most strategies still warm up
_WORST_FIRST = ("loses", "", "open", "level", "gains")


@dataclass(frozen=True)
class Gain:
    """How an arm at one length ended, compared with its rival."""

    runs: pd.DataFrame
    rival: pd.DataFrame  # without rows if no traditional training cost as much as the arm
    change: estimates.Estimate  # final error minus the rival's
    # Gains, loses, level, open, or "open: try" and what; empty if too few seeds are shared.
    verdict: str = ""
    # The traditional arm that was lower on its way, its error and cost there; this leaves it open.
    sooner: tuple[str, float, float] | None = None
    # The same over traditional training with the arm's treatments; None if that is not known.
    adds: "Gain | None" = None

    @property
    def label(self) -> str:
        """The arm, with its length if there are several."""
        return self.runs.label.iloc[0]

    @property
    def arm(self) -> str:
        """The strategy with its treatments."""
        return self.runs.arm.iloc[0]

    @property
    def parts(self) -> tuple[str, str]:
        """The strategy, and its treatments, empty if it has none."""
        base, _, treatments = self.arm.partition("+")
        return base, treatments

    @property
    def cell(self) -> str:
        """The change and the verdict."""
        verdict = f" ({self.verdict})" if self.verdict else ""
        return with_interval(self.change, signed=True) + verdict

    @property
    def selection(self) -> estimates.Estimate:
        """What selection changes; with treatments, beyond what these change, if that is known."""
        return (self.adds or self).change

    @property
    def answer(self) -> str:
        """The verdict on selection: what treatments gain does not count."""
        verdicts = [self.verdict.partition(":")[0]]
        if self.parts[1]:
            verdicts.append(self.adds.verdict.partition(":")[0] if self.adds else "open")
        return min(verdicts, key=_WORST_FIRST.index)


def gains(comparison: pd.DataFrame) -> list[Gain]:
    """Return the gain of every arm except traditional, at each of its lengths."""
    known = queries.counted(comparison)
    parts = known.arm.map(lambda name: frozenset(name.split("+")))
    found = []
    compared = lengths(known[~known.arm.str.startswith(queries.BASELINE)])
    for own in arms(known[known.arm != queries.BASELINE]).values():
        base, *treatments = own.arm.iloc[0].split("+")
        if base == queries.BASELINE and length(own) not in (compared or [length(own)]):
            continue  # it is there as a rival, and more verdicts would all be less sure
        alike = [{queries.BASELINE}, {queries.BASELINE, *treatments}]
        for names in alike if treatments and base != queries.BASELINE else alike[:1]:
            plain = known[parts == names]
            # Without one of the same cost, a longer traditional training might have been better.
            fair = any(queries.cost_as_much(own, other) for other in arms(plain).values())
            rival = queries.best_traditional(plain, own) if fair else known[:0]
            found.append((plain, Gain(own, rival, queries.final_difference(own, rival))))
    judged = list[Gain]()
    sides = estimates.holm([each.change for _, each in found])
    for (plain, each), side in zip(found, sides, strict=True):
        gain = _judged(plain, each, side)
        if not judged or judged[-1].runs is not gain.runs:
            judged.append(gain)
        elif len(gain.rival):
            judged[-1] = replace(judged[-1], adds=gain)
    return judged


def _judged(plain: pd.DataFrame, gain: Gain, side: estimates.Side) -> Gain:
    if side in ("unknown", "higher"):
        return replace(gain, verdict="loses" if side == "higher" else "")
    change, rival = gain.change, gain.rival
    small = min(measure_of(rival).small, 0.1 * queries.final_error(rival).mean)
    error, cost = queries.lowest_before(plain, gain.runs)
    end = queries.final_error(gain.runs[gain.runs.seed.isin(rival.seed)]).mean
    if error < end - small * (side == "unresolved"):
        arm = rival.arm.iloc[0]
        advice = f": try {arm} at {_option(cost)}" * (cost >= _LEAST)
        return replace(gain, verdict=f"open{advice}", sooner=(arm, error, cost))
    within = max(-change.low, change.high) <= small
    return replace(gain, verdict="gains" if side == "lower" else "level" if within else "open")


def _option(cost: float) -> str:
    return f"--budget {float(f'{cost:.2g}'):g}"


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
    every = gains(comparison)
    judged = _answering(every)
    why, todo = _unanswered(comparison, judged)
    known = [each for each in judged if math.isfinite(each.change.mean)]
    if not known:
        return Conclusion("Cannot be said", why, todo)
    best, plain = _best(known), _by_length(comparison, queries.BASELINE)
    ends = f"{_error(best.runs)} after {length(best.runs)}"
    ends += f" ({with_interval(best.change, signed=True)} {measure_of(comparison).step})"
    if why:
        pays, said = "Cannot be said", f"{best.arm} ends at {ends}. {why}"
    elif best.answer == "gains":
        pays, said = "Yes", f"{best.arm} gains: it ends at {ends}{_in_time(best)}"
        said += f"{_of_others(known, best)}."
    else:
        pays = "No" if all(each.answer == "loses" for each in known) else "Not shown"
        said = f"{best.arm} {_verb(best.verdict)}: it ends at {ends}."
        if len({each.arm for each in judged}) > 1:
            said = "Every strategy loses" if pays == "No" else "By selection, no strategy gains"
            said += f"; {_apart(every, best)}the nearest is {best.arm}, which ends at {ends}."
        for arm, error, cost in _sooner(best):
            at = f"{arm} was at {error:.2f}{measure_of(comparison).unit} after {cost:.2g} passes"
            said += f" Midway through a longer run, {at}, below the end of {best.arm}."
    told = {"Yes": [best.arm], "No": [each.arm for each in known]}.get(pays, [])
    if losing := [each for each in known if each.answer == "loses" and each.arm not in told]:
        said += f" {_some([each.label for each in losing])} lose{'s' * (len(losing) == 1)}."
    text = f"On {data_words(comparison)}, {_alike(best)}{_of_plain(best, plain)}. {said}"
    if apart := [each.label for each in judged if each.rival.empty]:
        text += f" Left out: {_some(apart)}, because no plain training cost as much."
    return Conclusion(pays, text, todo or _next_step(every, best, plain))


def _alike(best: Gain) -> str:
    if best.adds is None:
        return ""
    base, treatments = best.parts
    alone = queries.final_difference(best.adds.rival, best.rival)
    return (
        f"{treatments} alone changes the error by {with_interval(alone, signed=True)} "
        f"{measure_of(best.runs).step}, and {base} adds {best.adds.cell}; "
    )


def _best(known: Sequence[Gain]) -> Gain:
    gaining = [each for each in known if each.answer == "gains"]
    if not gaining:
        return min(known, key=lambda each: each.selection.mean)
    lowest = min(gaining, key=lambda each: queries.final_error(each.runs).mean).arm
    same = [each for each in gaining if each.arm == lowest]
    return min(same, key=lambda each: queries.cost_of(each.runs))


def _sooner(best: Gain) -> list[tuple[str, float, float]]:
    return [each.sooner for each in (best, best.adds) if each and each.sooner]


def _next_step(judged: Sequence[Gain], best: Gain, plain: Sequence[pd.DataFrame]) -> str:
    base, treatments = best.parts
    if treatments and best.adds is None and base != queries.BASELINE:
        alone = f"{queries.BASELINE}+{treatments}"
        return f"add {alone} to --strategies: it shows what {treatments} does without selection."
    sooner = _sooner(best)
    if not sooner and best.answer == "gains" and length(best.rival) == length(plain[0]):
        sooner = [(queries.BASELINE, 0.0, queries.cost_of(plain[0]) / 2)]
    for arm, _, cost in sooner:
        if cost >= _LEAST:  # alone, because more verdicts would all be less sure
            options = f"--strategies {arm} {_option(cost)}"
            return f"run the same with {options}, then report: plain training may end lower there."
    seeds = estimates.seeds_to_find(best.selection.mean, best.selection, tests(judged))
    if best.answer == "open" and not sooner and seeds is not None:
        return f"run more seeds: --seeds {seeds} would probably show a difference of this size."
    return ""


def tests(judged: Sequence[Gain]) -> int:
    """Return the number of differences that Holm's correction covers."""
    return sum(bool(each.verdict) for gain in judged for each in (gain, gain.adds) if each)


def _answering(judged: list[Gain]) -> list[Gain]:
    """Return the gains that say whether selection pays; controls count only without others."""
    taken = [each for each in judged if each.parts[0] not in BOUNDS]
    return [each for each in taken if each.parts[0] not in (*CONTROLS, queries.BASELINE)] or taken


def _apart(judged: Sequence[Gain], best: Gain) -> str:
    nearer = [each for each in judged if each.selection.mean < best.selection.mean]
    controls = dict.fromkeys(each.arm for each in nearer if each.parts[0] in CONTROLS)
    return f"apart from random choice ({listed(controls)}), " if controls else ""


def _unanswered(comparison: pd.DataFrame, judged: Sequence[Gain]) -> tuple[str, str]:
    if not _by_length(comparison, queries.BASELINE):
        why = f"There is no verdict: no run of plain training ({queries.BASELINE}) is finished."
        return why, f"run it as well (--strategies {queries.BASELINE},…); finished runs are kept."
    if not judged:
        return f"There is no verdict: nothing but {queries.BASELINE} has finished a run.", ""
    if all(each.rival.empty for each in judged):
        why = f"There is no verdict: no {queries.BASELINE} run cost as much as a strategy did."
        return why, "give all strategies the same cost, such as --budget 8."
    seeds = max(each.change.seeds for each in judged)
    if seeds < estimates.ENOUGH_SEEDS:
        shared = f"{seeds or 'no'} shared seed{'' if seeds == 1 else 's'}"
        why = f"With {shared} there is no verdict; a verdict takes {estimates.ENOUGH_SEEDS}."
        return why, f"run the same with --seeds {estimates.ENOUGH_SEEDS}; finished runs are kept."
    if not any(each.verdict for each in judged):
        return "There is no verdict: runs diverged.", "try a lower learning rate, --lr."
    return "", ""


def _of_plain(best: Gain, plain: Sequence[pd.DataFrame]) -> str:
    ends, after = _error(best.rival), length(best.rival)
    if len(plain) == 1:
        return f"plain training ends at {ends} after {after}"
    lowest = min(plain, key=lambda own: queries.final_error(own).mean)
    own = length(best.runs)
    upto = own if own.unit == "cost" else f"{queries.cost_of(best.runs):.3g} passes"
    part = "" if length(lowest) == after else f"of up to {upto} "
    return f"plain training {part}ends lowest after {after}, at {ends}, the number to beat"


def _in_time(best: Gain) -> str:
    own, rival = (queries.last(runs).cpu_seconds.mean() for runs in (best.runs, best.rival))
    return f", in {own / rival:.2f} times the CPU time" if own > 0 < rival else ""


def _of_others(known: Sequence[Gain], best: Gain) -> str:
    own = [each for each in known if each.arm == best.arm and each.answer != "gains"]
    text = "".join(f"; after {length(each.runs)} it {_verb(each.answer)}" for each in own)
    gaining = {each.arm: None for each in known if each.answer == "gains" and each.arm != best.arm}
    return text + (f". Others that gain: {_some([*gaining])}" if gaining else "")


def _by_length(comparison: pd.DataFrame, arm: str) -> list[pd.DataFrame]:
    known = queries.counted(comparison)
    return sorted(arms(known[known.arm == arm]).values(), key=queries.cost_of)


def _verb(verdict: str) -> str:
    verbs = {"level": "is level", "gains": "gains", "loses": "loses"}
    return verbs.get(verdict, "is not shown to gain or to lose")


def _error(runs: pd.DataFrame) -> str:
    measure = measure_of(runs)
    return f"{queries.final_error(runs).mean:.2f}{measure.unit} {measure.name}"


def _some(words: Sequence[str]) -> str:
    more = len(words) - _MOST_NAMED
    return listed(words if more < 2 else [*words[:_MOST_NAMED], f"{more} more"])
