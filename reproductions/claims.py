"""What papers claim, a row each, and how a row is judged by the frame of its figure.

A row says which sentence it is of, whom it is about, what is measured, and on which side of which
limit that must lie. The rows of a study stand in `<study>/reported.toml`, below their figures.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import groupby
from typing import Any, Literal, NamedTuple

import pandas as pd

from reproductions import measures
from reproductions.evidence import Evidence, Panel
from reproductions.quotes import Reported
from reproductions.settings import Arm
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.curves import AXIS_WORDS
from selective_backprop_lab.analysis.estimates import Estimate, estimate
from selective_backprop_lab.analysis.tables import with_interval
from selective_backprop_lab.analysis.verdict import Finding, Verdict, in_words, is_above, is_below

Judged = tuple[str, Finding]
"""The name of a quote, and what the records say of it."""


class Case(NamedTuple):
    """What a measure is asked of: one arm, or one beside another."""

    panels: Sequence[Panel]  # one; of a claim across panels, all of a figure
    mine: pd.DataFrame  # evaluations of the arm that a claim is about; of none, the whole panel's
    theirs: pd.DataFrame  # of the arm that it is compared with
    axis: str

    @property
    def panel(self) -> Panel:
        """The panel that a claim is about."""
        return self.panels[0]


Answer = Estimate | tuple[Verdict, str] | None
"""A quantity, or a verdict and what was measured; None where there is nothing to judge."""


class Measure(NamedTuple):
    """What a claim may be about, by a name in `MEASURES` or in those of a study."""

    of: Callable[..., Answer]  # of a case, with the options of the claim
    unit: str = ""  # {axis} is the axis in words
    signed: bool = True  # whether it is a difference


@dataclass(frozen=True)
class Claim:
    """A claim of a source: a row of `reported.toml`."""

    of: str  # the name of the sentence that says it
    text: str  # {0} and {1} are the arms' labels; {method} and {share} the parts of the first
    measure: Measure  # in the file its name
    # Keys of the arm that it is about and of the one that it is compared with. A pattern stands
    # for each arm that it fits; * in the second for what it fits in the first. The same pattern
    # twice: the first such arm against the last one.
    arms: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # of the measure; in the file `with`
    side: Literal["above", "below", "within"] = "above"  # of the limit; or between both signs of it
    limit: float = 0.0
    relative: bool = False  # whether the limit is a share of the other's final error
    whose: Literal["source", "ours"] = "source"  # who set the limit
    unit: str = ""  # in place of the measure's
    remark: str = ""  # after the numbers; {limit} is the limit
    axes: Sequence[str] = ("cost",)  # judged along each; "seconds" are those of the runs' clock
    data: str = ""  # of the source, whose panels it is about; "" for all
    only: str = ""  # what is found in the panel's title and the arm's label: a regular expression
    across: bool = False  # about an arm of the first panel, and one of the last


def read_claims(
    reported: Mapping[str, Reported], measures: Mapping[str, Measure]
) -> dict[str, list[Claim]]:
    """Return the claims of each figure; a row `{ of = …, as = … }` stands for another's rows."""

    def read(name: str) -> Iterator[Claim]:
        for row in reported[name].claims:
            if "as" in row:
                yield from (replace(claim, of=row["of"]) for claim in read(row["as"]))
                continue
            options = {key: value for key, value in row.items() if key not in {"measure", "with"}}
            options["options"] = row.get("with", {})
            yield Claim(measure=measures[row["measure"]], **options)

    return {name: [*read(name)] for name in reported}


def judge(claims: Sequence[Claim], evidence: Evidence) -> Iterator[Judged]:
    """Judge claims by the evaluations of every panel, or by timings.

    Of claims in succession that are about the same arms, each arm and axis has all in turn.
    """
    for times in evidence.timings:
        for claim in claims:
            text = claim.text.format(times.config["model"])
            yield claim.of, _finding(claim, text, claim.measure.of(times), claim.limit)
    every = [(panel,) for panel in evidence.panels]
    if any(claim.across for claim in claims):
        every = [evidence.panels] if len(evidence.panels) > 1 else []
    for panels in every:
        for arms, block in groupby(claims, key=lambda claim: claim.arms):
            rows = list(block)
            for pair in _pairs(arms, panels[0].arms, panels[-1].arms):
                for axis in dict.fromkeys(axis for row in rows for axis in row.axes):
                    for row in (row for row in rows if axis in row.axes):
                        yield from _judged(row, panels, pair, axis)


def _pairs(keys: Sequence[str], first: Sequence[Arm], last: Sequence[Arm]) -> list[Sequence[Arm]]:
    """Return each arm that is judged, with the one that it is compared with."""
    if not keys:
        return [()]
    pattern, *other = keys
    found = [arm for arm in first if fnmatch(arm.key, pattern)]
    if not other:
        return [(arm,) for arm in found]
    if other == [pattern] and "*" in pattern:
        return [(found[0], found[-1])] if len(found) > 1 else []
    start = pattern.index("*") if "*" in pattern else 0
    return [
        (arm, reference)
        for arm in found
        for reference in last
        if reference.key == other[0].replace("*", arm.key[start:])
    ]


def _judged(
    claim: Claim, panels: Sequence[Panel], pair: Sequence[Arm], axis: str
) -> Iterator[Judged]:
    panel = panels[0]
    labels = [arm.label for arm in pair] or [""]
    if claim.data not in ("", panel.setting.published.data):
        return
    if not re.search(claim.only, f"{panel.title}: {labels[0]}"):
        return
    (axis,) = measures.timed((axis,), panel.runs)
    frames = [each[arm.key] for each, arm in zip((panel, panels[-1]), pair, strict=False)]
    case = Case(panels, *[*frames, panel.runs, panel.runs][:2], axis)
    answer = claim.measure.of(case, **claim.options)
    if answer is None:
        return
    method, _, share = labels[0].partition(" ")
    names = {"axis": AXIS_WORDS[axis], "method": method, "share": share, "panels": panels}
    title = "" if claim.across else f"{panel.title}: "
    limit = claim.limit * (queries.final(case.theirs).mean() if claim.relative else 1.0)
    text = title + claim.text.format(*labels, **names)
    yield claim.of, _finding(claim, text, answer, limit, **names)


def _finding(
    claim: Claim,
    text: str,
    answer: Answer,
    limit: float,
    **names: Any,
) -> Finding:
    if claim.whose == "ours" and not claim.remark:
        text += " (our limit)"
    if isinstance(answer, Estimate):
        unit = (claim.unit or claim.measure.unit).format(**names)
        signed = claim.measure.signed
        words = in_words(answer, unit) if signed else f"{with_interval(answer)} {unit}"
        answer = _SIDES[claim.side](answer, limit), words
    verdict, words = answer or (Verdict.OPEN, "")
    return Finding(text, verdict, words + claim.remark.format(limit=limit))


def _is_within(found: Estimate, limit: float) -> Verdict:
    """Judge whether a quantity lies between both signs of a limit."""
    sides = {is_below(found, limit), is_above(found, -limit)}
    if Verdict.FAILS in sides:
        return Verdict.FAILS
    return Verdict.HOLDS if sides == {Verdict.HOLDS} else Verdict.OPEN


_SIDES = {"above": is_above, "below": is_below, "within": _is_within}


def _on_the_way(case: Case) -> Estimate:
    return measures.earlier(case.mine, case.theirs, case.axis)


def _at_the_end(case: Case) -> Estimate:
    return measures.final_difference(case.mine, case.theirs)


_END = "points of final error"
MEASURES = {
    "error on the way": Measure(_on_the_way, "points of mean error over the same {axis}"),
    "final error": Measure(_at_the_end, _END),
    "excess of final error": Measure(_at_the_end, _END, signed=False),
}


def times_as_fast(ratios: pd.Series, where: str) -> tuple[Verdict, str]:
    """Return whether logarithms of how many times sooner something is are above 0, in words."""
    if not len(ratios):
        return Verdict.OPEN, "nothing to measure"
    found = estimate([*ratios])
    middle, low, high = (math.exp(x) for x in (found.mean, found.low, found.high))
    interval = "" if math.isnan(found.half_width) else f" ({low:.2f} to {high:.2f})"
    return is_above(found), f"{middle:.2f}× as fast {where}{interval}"
