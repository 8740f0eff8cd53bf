"""A figure or table of a source, with its claims, and how its frame judges them.

A row of a claim names its sentence, its arms, its measure, and the side of a limit on which the
measure must lie. The rows of a study stand in `<study>/reported.toml`, below their figures.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
from matplotlib.figure import Figure as Drawing

from reproductions import measures
from reproductions.measures import Evidence, Panel, final_difference
from reproductions.settings import Arm, Scale
from reproductions.training import StepTiming
from selective_backprop_lab.analysis import queries
from selective_backprop_lab.analysis.estimates import Estimate, Finding, Verdict, is_above, opposite
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import Table, in_words, with_interval
from selective_backprop_lab.records.frame import AXIS_WORDS


class Source(NamedTuple):
    """A document that says something of selection."""

    title: str  # as a page names it
    file: str  # the name of its text


class Quote(NamedTuple):
    """A sentence of a source, or as much of one as makes a claim."""

    text: str
    section: str  # of its source
    source: Source


class Reported(NamedTuple):
    """A figure or table of a source, with its sentences and claims."""

    title: str  # in our words
    place: str  # such as "figure 5"
    source: Source
    quotes: Mapping[str, Quote]  # by the short name that claims name
    words: str = ""  # at the start of the caption
    notes: Sequence[str] = ()  # on the source, in our words
    ours: str = ""  # the measurement, if it differs from the caption
    model: str = ""  # the net whose steps the source timed
    claims: Sequence[Mapping[str, Any]] = ()  # rows; see `claims.Claim`


_SOURCES = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
SOURCES = {name: Source(**fields) for name, fields in _SOURCES.items()}


def read_reported(path: Path) -> dict[str, Reported]:
    found = {}
    for name, said in tomllib.loads(path.read_text(encoding="utf-8")).items():
        source, quotes = said["source"], dict[str, Quote]()
        for key, quote in said.get("quotes", {}).items():
            quotes[key] = Quote(**quote | {"source": SOURCES[quote.get("source", source)]})
        found[name] = Reported(**said | {"source": SOURCES[source], "quotes": quotes})
    return found


LEAST = 3  # seeds, for a verdict in seconds, or on a target that is reached or not
MOST = 2.0  # points of error: a tenth of an error of 80 % is not comparable
Judged = tuple[str, Finding]  # the name of a quote, and the finding of the records
Compared = tuple[Any, ...]  # the identity of a comparison: its measure, its runs and its limit
# Reasons for which a verdict does not count.
NOTHING, CERTAIN = "nothing to compare", "by construction"


class Case(NamedTuple):
    """The subject of a measure: one arm, or one beside another."""

    panels: Sequence[Panel]  # one; all of a figure for a claim across panels
    mine: pd.DataFrame  # evaluations of the claim's arm; without one, those of the whole panel
    theirs: pd.DataFrame  # of the arm that it is compared with
    axis: str
    first: Panel | None = None  # of the figure

    @property
    def panel(self) -> Panel:
        return self.panels[0]


Answer = Estimate | tuple[Verdict | str, str] | None
"""A quantity; or a verdict, or why there is none, with words; or None: nothing to judge."""


class Measure(NamedTuple):
    """A measure, which claims name as `MEASURES` or those of a study do."""

    of: Callable[..., Answer]  # of a case, with the options of the claim
    unit: str = ""  # {axis} is the axis in words
    signed: bool = True  # whether it is a difference


@dataclass(frozen=True)
class Claim:
    """A claim of a source: a row of `reported.toml`."""

    of: str  # the name of the sentence
    text: str  # {0} and {1} are the arms' labels; {method} and {share} the parts of the first
    measure: Measure  # in the file its name
    # Keys of the arm and of the one that it is compared with. A pattern stands for each arm that it
    # fits; * in the second for what it fits in the first. The same pattern twice: the first such
    # arm against the last one.
    arms: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # of the measure; in the file `with`
    side: Literal["above", "below", "within"] = "above"  # of the limit; or between both signs of it
    limit: float = 0.0
    relative: bool = False  # whether it is a share of the other's final error, up to `MOST` points
    whose: Literal["source", "ours"] = "source"  # who set the limit
    unit: str = ""  # in place of the measure's
    remark: str = ""  # after the numbers; {limit} is the limit
    axes: Sequence[str] = ("cost",)  # judged along each; "seconds" are those of the runs' clock
    data: str = ""  # the data set of the source; "each" if it names all, "" for any
    certain: bool = False  # whether it cannot fail, by how the arms are made
    only: str = ""  # a regular expression, found in the panel's title and the arm's label
    across: bool = False  # about an arm of the first panel, and one of the last


def judge(
    claims: Sequence[Claim], evidence: Evidence, elsewhere: Mapping[Compared, str] | None = None
) -> Iterator[Judged]:
    """Judge claims in panels and by timings; what an item `elsewhere` compares is not counted."""
    for times in evidence.timings:
        for claim in claims:
            text = claim.text.format(times.config["model"])
            yield claim.of, _finding(claim, text, claim.measure.of(times), claim.limit)
    before = {key: f"counted at {name}" for key, name in (elsewhere or {}).items()}
    for one in _comparisons(claims, evidence.panels):
        if (finding := _judged(one, evidence.panels[0])) is None:
            continue
        keys = one.identity, one.numbers(finding)
        if not finding.aside:
            aside = next((before[key] for key in keys if key in before), "")
            finding = replace(finding, aside=aside)
            before = dict.fromkeys(keys, "counted above") | before
        yield one.claim.of, finding


def compared(claims: Sequence[Claim], panels: Sequence[Panel]) -> list[Compared]:
    """Return the comparisons that count of claims in panels, run or planned."""
    return [one.identity for one in _comparisons(claims, panels) if not one.untested]


class _Comparison(NamedTuple):
    claim: Claim
    panels: Sequence[Panel]  # one; all of a figure for a claim across panels
    arms: Sequence[Arm]
    axis: str

    @property
    def identity(self) -> Compared:
        claim = self.claim
        runs = [(arm.plan.record_name, arm.seeds) for arm in self.arms or self.panels[0].arms]
        limit = claim.side, claim.limit, claim.relative
        return claim.measure.of, *sorted(claim.options.items()), *limit, self.axis, *runs

    def numbers(self, finding: Finding) -> Compared:
        plain = self._replace(claim=replace(self.claim, options={}))
        said = finding.measured
        how = "times" if "×" in said else self.claim.measure.of
        found = re.findall(r"[\d.]+(?=×| ±)|(?<=± )[\d.]+|(?<=\()[\d.]+ to [\d.]+", said)
        return how, *plain.identity[5:], *found, len(found) or finding

    @property
    def untested(self) -> str:
        """Why the claim does not count here, whatever was measured; "" if it counts."""
        if self.claim.certain:
            return CERTAIN
        if self.panels[0].setting.learning_rates:
            return "at tuned rates"
        return "not tested" if self.claim.data and not self.panels[0].setting.real else ""


def _comparisons(claims: Sequence[Claim], panels: Sequence[Panel]) -> Iterator[_Comparison]:
    """Yield claims with panels, arms and axis; claims of the same arms take turns at each axis."""
    every = [(panel,) for panel in panels]
    if any(claim.across for claim in claims):
        every = [panels] if len(panels) > 1 else []
    for these in every:
        for arms, block in groupby(claims, key=lambda claim: claim.arms):
            name = these[0].setting.published.data
            rows = [row for row in block if row.data in ("", "each", name)]
            for pair in _pairs(arms, these[0].arms, these[-1].arms):
                for axis in dict.fromkeys(axis for row in rows for axis in row.axes):
                    for row in (row for row in rows if axis in row.axes):
                        label = pair[0].label if pair else ""
                        if re.search(row.only, f"{these[0].title}: {label}"):
                            yield _Comparison(row, these, pair, axis)


def _pairs(keys: Sequence[str], first: Sequence[Arm], last: Sequence[Arm]) -> list[Sequence[Arm]]:
    if not keys:
        return [()]
    pattern, *other = keys
    found = [arm for arm in first if fnmatch(arm.key, pattern)]
    if not other:
        return [(arm,) for arm in found]
    if other == [pattern] and "*" in pattern:
        return [(found[0], found[-1])] if len(found) > 1 else []
    start = max(0, pattern.find("*"))
    keyed = {each.key: each for each in last}
    names = [(arm, other[0].replace("*", arm.key[start:])) for arm in found]
    return [(arm, keyed[name]) for arm, name in names if name in keyed]


def _judged(one: _Comparison, first: Panel) -> Finding | None:
    (claim, panels, pair, axis), panel = one, one.panels[0]
    labels = [arm.label for arm in pair] or [""]
    sides = [(each, arm.key) for each, arm in zip((panel, panels[-1]), pair, strict=False)]
    frames = [each[key] for each, key in sides]
    if axis == "seconds":
        near = measures.beside(*frames) if len(frames) == 2 else [panel.runs]
        if len(frames) == 2 and near[0].seed.nunique() >= LEAST:
            axis, frames = measures.clock(near[0]), [*near]
        else:
            (axis,) = measures.timed((axis,), pd.concat(frames) if frames else panel.runs)
        if axis in claim.axes:
            return None  # seconds that do not compare, of a claim that is judged by cost as well
    case = Case(panels, *[*frames, panel.runs, panel.runs][:2], axis, first)
    answer = claim.measure.of(case, **claim.options)
    if answer is None:
        return None
    aside = next(filter(None, (each.gate_shut(key) for each, key in sides)), "")
    method, _, share = labels[0].partition(" ")
    names = {"axis": AXIS_WORDS[axis], "method": method, "share": share, "panels": panels}
    title = "" if claim.across else f"{panel.title}: "
    limit = claim.limit
    if claim.relative:
        limit = min(limit * queries.final(case.theirs).mean(), MOST)
    text = title + claim.text.format(*labels, **names)
    finding = _finding(claim, text, answer, limit, **names)
    return replace(finding, aside=aside or one.untested or finding.aside)


def _finding(claim: Claim, text: str, answer: Answer, limit: float, **names: Any) -> Finding:
    if claim.whose == "ours" and not claim.remark:
        text += " (our limit)"
    if isinstance(answer, Estimate):
        unit = (claim.unit or claim.measure.unit).format(**names)
        signed = claim.measure.signed
        words = in_words(answer, unit) if signed else f"{with_interval(answer)} {unit}"
        answer = (is_within if claim.side == "within" else is_above)(answer, limit), words
    if answer and claim.side == "below" and isinstance(answer[0], Verdict):
        answer = opposite(answer[0]), answer[1]
    verdict, words = answer or (Verdict.OPEN, "")
    words += claim.remark.format(limit=limit)
    if isinstance(verdict, Verdict):
        return Finding(text, verdict, words)
    return Finding(text, Verdict.OPEN, words, verdict)


def is_within(found: Estimate, limit: float) -> Verdict:
    """Judge whether a quantity lies between both signs of a limit."""
    sides = opposite(is_above(found, limit)), is_above(found, -limit)
    return next((side for side in (Verdict.FAILS, Verdict.OPEN) if side in sides), Verdict.HOLDS)


def beyond_the_first(case: Case, of: Callable[[pd.DataFrame, pd.DataFrame], pd.Series]) -> Estimate:
    """Return how much higher a number of two arms is than in the figure's first panel."""
    assert case.first is not None
    pair = case.mine, case.theirs
    there = [case.first[runs.key.iloc[0]] for runs in pair]
    return measures.paired(of(*pair) - of(*there))


_END = Measure(lambda case: final_difference(case.mine, case.theirs), "points of final error")
Amount = partial(Measure, signed=False)
MEASURES = {
    "error on the way": Measure(
        lambda case: measures.earlier(case.mine, case.theirs, case.axis),
        "points of mean error over the same {axis}",
    ),
    "final error": _END,
    "excess of final error": _END._replace(signed=False),
    "further behind": Measure(
        partial(beyond_the_first, of=lambda one, other: queries.final(one) - queries.final(other)),
        "points of final error more than in the first panel",
    ),
}


def times_as_fast(ratios: pd.Series, where: str) -> tuple[Verdict | str, str]:
    """Return whether logarithms of how many times sooner something is are above 0, in words."""
    if not len(ratios):
        return NOTHING, ""
    found = measures.over_seeds(ratios)
    low, high = math.exp(found.low), math.exp(found.high)
    interval = "" if math.isnan(found.half_width) else f" ({low:.2f} to {high:.2f})"
    return is_above(found), f"{math.exp(found.mean):.2f}× as fast {where}{interval}"


@dataclass(frozen=True)
class Figure:
    """One figure or table of a source."""

    name: str  # on the command line
    reported: Reported
    claims: Sequence[Claim]
    planned: Callable[[Scale], Sequence[Panel]]  # whatever part of them is asked for
    draw: Callable[[Evidence], Drawing | None] = lambda evidence: None
    tables: Callable[[Evidence], Sequence[Table]] = lambda evidence: ()
    timed: Callable[[Scale], Sequence[StepTiming]] = lambda scale: ()
    whole: bool = False  # whether it is nothing without one of its panels

    def panels(self, scale: Scale) -> list[Panel]:
        every = self.planned(scale)
        if scale.arms:
            kept = [[arm for arm in each.arms if arm.strategy in scale.arms] for each in every]
            every = [replace(p, arms=tuple(arms)) for p, arms in zip(every, kept, strict=True)]
        found = [p for p in every if p.arms and scale.has(p.setting.recipe)]
        return [] if self.whole and len(found) < len(every) else found

    def timings(self, scale: Scale) -> list[StepTiming]:
        return [each for each in self.timed(scale) if not scale.arms and scale.has(each.recipe)]

    def needs(self, scale: Scale) -> bool:
        return bool(self.panels(scale) or self.timings(scale))

    def form(self, scale: Scale) -> str:
        """Return in one line whether it is as its source captions it."""
        if self.reported.ours:
            return f"ours: {self.reported.ours}"
        changed = {what: None for words in self.changes(scale).values() for what in words}
        return f"compressed: {', '.join(changed)}" if changed else "as captioned"

    def changes(self, scale: Scale) -> dict[str, Mapping[str, str]]:
        """Return the differences from the source's settings, in words, by our setting."""
        found: dict[str, dict[str, str]] = {
            panel.setting.title: panel.setting.changes for panel in self.panels(scale)
        }
        recipes = [timing.recipe for timing in self.timings(scale)]
        nets, sizes = [each.model for each in recipes], {each.batch_size for each in recipes}
        timed = found.setdefault("Timed", {})
        if nets and self.reported.model not in nets:
            timed["net"] = f"{', '.join(nets)} instead of {self.reported.model}"
        if sizes - {128}:
            said = listed(map(str, sorted(sizes - {128})))
            timed["batch size"] = f"batches of {said} instead of 128"
        return {title: words for title, words in found.items() if words}


def by_panel(table: Callable[[Panel], Table]) -> Callable[[Evidence], Sequence[Table]]:
    return lambda evidence: [table(panel) for panel in evidence.panels]


def figures_of(
    reported: Path, made: Mapping[str, Mapping[str, Any]], own: Mapping[str, Measure]
) -> tuple[Figure, ...]:
    """Return a source's figures, with the fields that are `made`, and measures of its `own`.

    A row of a claim `{ of = …, as = … }` stands for the rows of another figure.
    """
    said, known = read_reported(reported), {**MEASURES, **own}

    def claims(name: str) -> Iterator[Claim]:
        for row in said[name].claims:
            if "as" in row:
                yield from (replace(claim, of=row["of"]) for claim in claims(row["as"]))
                continue
            fields = {key: value for key, value in row.items() if key not in {"measure", "with"}}
            yield Claim(measure=known[row["measure"]], options=row.get("with", {}), **fields)

    found = list[Figure]()
    for name, each in said.items():
        fields: dict[str, Any] = {"first": (), **made[name]}
        found.append(Figure(name, each, [*fields.pop("first"), *claims(name)], **fields))
    return tuple(found)
