"""The report of a comparison: one HTML file that opens anywhere, offline, and asks for nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from selective_backprop_lab.analysis.findings import findings
from selective_backprop_lab.analysis.grouping import Comparison
from selective_backprop_lab.analysis.run_summary import facts, headline, notes
from selective_backprop_lab.analysis.statistics import Axis
from selective_backprop_lab.analysis.summary import numbers_table, records_table, soon_table
from selective_backprop_lab.records.example_history import ExampleHistory
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.report.examples import (
    CLASSES,
    class_plot,
    gallery,
    group_histories,
    life_plot,
    spread_plot,
)
from selective_backprop_lab.report.plots import (
    difference_plot,
    error_plot,
    pareto_plot,
    phase_plot,
)
from selective_backprop_lab.report.styles import styles

# Plotly offers by itself to send a figure to its maker's server; this page has no such button.
_PLOTLY = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}


def write_report(
    comparison: Comparison,
    path: str | Path,
    *,
    histories: Mapping[Path, ExampleHistory] | None = None,
    problems: Sequence[str] = (),
    axis: Axis = "seconds",
) -> None:
    """Write the report of a comparison, with its examples' histories, and times along an axis.

    The page is written beside its place and then moved there, so that a reader never meets half of
    it. It is about 5 MB, nearly all of it Plotly's own code.

    Raises:
        OSError: if the file cannot be written.
    """
    path = Path(path)
    kept, without = group_histories(comparison, histories or {})
    look = styles(comparison)
    # Where all that a figure has would be hidden at first, all of it is shown.
    hidden = not any(look[label].shown for label in kept)
    seen = {label: replace(style, shown=hidden or style.shown) for label, style in look.items()}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["drawn"] = _drawn
    page = environment.get_template("page.html.j2").render(
        comparison=comparison,
        measure=comparison.measure,
        headline=headline(comparison),
        plotly=Markup(get_plotlyjs()),
        problems=problems,
        findings=findings(comparison),
        notes=notes(comparison),
        error=error_plot(comparison),
        hidden=not all(style.shown for style in look.values()),
        numbers=numbers_table(comparison),
        colours=[style.colour for style in look.values()],
        soon=soon_table(comparison, axis),
        difference=difference_plot(comparison),
        pareto=pareto_plot(comparison),
        phases=phase_plot(comparison),
        kept=kept,
        without=without,
        spread=spread_plot(kept, seen),
        classes=class_plot(kept, seen),
        most_classes=CLASSES,
        gallery=gallery(kept) if kept else None,
        life=life_plot(kept, seen),
        facts=facts(comparison),
        commands=dict.fromkeys(run.header.command for run in comparison.runs),
        records=records_table(comparison),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        # What a command line held may be no text at all; a page with a "?" is better than none.
        file.write(page.encode(errors="replace"))


def _drawn(figure: go.Figure, name: str) -> Markup:
    """Return a figure's place on the page, and Plotly's call that draws it."""
    html = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=_PLOTLY)
    return Markup(html)
