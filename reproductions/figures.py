"""A figure or table of a source: its panels, how they are drawn and listed, and its claims."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

from reproductions.claims import MEASURES, Claim, Measure, Reported, read_claims, read_reported
from reproductions.measures import Evidence, Panel
from reproductions.settings import Scale
from reproductions.training import StepTiming
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import Table


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
    reported: Path,
    made: Mapping[str, Mapping[str, Any]],
    measures: Mapping[str, Measure],
    more: Mapping[str, Iterable[Claim]] | None = None,
) -> tuple[Figure, ...]:
    """Return a source's figures: `made` has the fields from `planned` on, `more` first claims."""
    said, first = read_reported(reported), more or {}
    claims = read_claims(said, {**MEASURES, **measures})
    return tuple(
        Figure(name, each, [*first.get(name, ()), *claims[name]], **made[name])
        for name, each in said.items()
    )
