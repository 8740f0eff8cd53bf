"""Pieces of the report's HTML: figures with their buttons and legends, tables, lists."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from selective_backprop.lab.analysis.tables import Summary
from selective_backprop.lab.report.plots import AXES, Entry, Plot
from selective_backprop.lab.report.styles import SVG_DASHES

_BUTTONS = {
    "cost": "cost",
    "seconds": "wall seconds",
    "trained": "backward passes",
    "updates": "updates",
    "candidates": "candidates",
}


def bullets(notes: Sequence[str]) -> Iterable[str]:
    """Yield a list of notes; nothing for none."""
    if notes:
        yield '<ul class="notes">'
        yield from (f"<li>{html.escape(note)}</li>" for note in notes)
        yield "</ul>"


def figure(plot: Plot, caption: str) -> Iterable[str]:
    """Yield a figure's place, with the buttons, the slider and the legend that switch it."""
    yield "<figure>"
    choices = [
        ("along", "choice", {axis: _BUTTONS[axis] for axis in AXES if axis in plot.choices}),
        ("error", "scale", {scale: scale for scale in plot.scales}),
    ]
    groups = [
        f"<div><span>{label}</span>{_buttons(plot, kind, words)}</div>"
        for label, kind, words in choices
        if len(words) > 1
    ]
    if groups:
        yield f'<div class="choices">{"".join(groups)}</div>'
    if plot.steps:
        last = len(plot.steps) - 1
        yield (
            f'<div class="slider"><input type="range" min="0" max="{last}" value="{last}" '
            f'data-steps="{plot.name}" aria-label="moment of the run">'
            f"<output>after {html.escape(plot.steps[-1]['name'])}</output></div>"
        )
    yield f'<div class="plot" id="{plot.name}" role="img" aria-label="{plot.title}"></div>'
    yield f'<div class="legend">{"".join(_entry(plot, entry) for entry in plot.legend)}</div>'
    yield f"<figcaption>{caption}</figcaption>"
    yield "<noscript><p>The figure needs JavaScript; the tables do not.</p></noscript>"
    yield "</figure>"


def _entry(plot: Plot, entry: Entry) -> str:
    """Return a legend's entry: a button with the line, or the area, that it switches."""
    label = html.escape(entry.label)
    if entry.dash is None:
        sample = f'<rect width="12" height="12" fill="{entry.colour}"/>'
        size = 'width="12" height="12"'
    else:
        dashes = SVG_DASHES[entry.dash]
        sample = (
            f'<line x1="0" x2="30" y1="6" y2="6" stroke="{entry.colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dashes}"/>'
        )
        size = 'width="30" height="12"'
    return (
        f'<button type="button" data-legend="{plot.name}" data-entry="{label}" '
        f'aria-pressed="{str(entry.shown).lower()}"><svg {size} aria-hidden="true">{sample}</svg>'
        f"{label}</button>"
    )


def _buttons(plot: Plot, kind: str, words: Mapping[Any, str]) -> str:
    return "".join(
        f'<button type="button" data-plot="{plot.name}" data-{kind}="{value}" '
        f'aria-pressed="{"true" if number == 0 else "false"}">{word}</button>'
        for number, (value, word) in enumerate(words.items())
    )


def arm_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    summary: Summary,
    *,
    groups: Sequence[tuple[str, int]] = (),
) -> Iterable[str]:
    """Yield a table with one row per arm; groups are headings over so many columns."""
    yield '<div class="wide"><table><thead>'
    if groups:
        cells = (f'<th class="group" colspan="{n}">{html.escape(text)}</th>' for text, n in groups)
        yield f"<tr>{''.join(cells)}</tr>"
    yield "<tr>" + "".join(f"<th>{html.escape(text)}</th>" for text in headings) + "</tr>"
    yield "</thead><tbody>"
    previous = None
    for row, cells in zip(summary.rows, rows, strict=True):
        ruled = ' class="rule"' if previous not in (None, row.arm.length) else ""
        previous = row.arm.length
        yield f"<tr{ruled}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div>"
