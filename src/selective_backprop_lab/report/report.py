"""The report of a comparison: one HTML file that opens anywhere, also offline."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from selective_backprop_lab.analysis.comparison import is_crowd, measure_of
from selective_backprop_lab.analysis.facts import facts, headline
from selective_backprop_lab.analysis.findings import conclusion
from selective_backprop_lab.analysis.summary import comparison_table, records_table
from selective_backprop_lab.records.example_history import ExampleHistory
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.report.examples import CLASSES, draw_classes, gallery, kept_histories
from selective_backprop_lab.report.figures import differences, drawn, overview
from selective_backprop_lab.report.styles import styles


def write_report(
    comparison: pd.DataFrame,
    path: str | Path,
    *,
    histories: Mapping[Path, ExampleHistory] | None = None,
    problems: Sequence[str] = (),
    axis: str = "seconds",
) -> None:
    """Write the report of a comparison, with the seconds of `axis` and examples' histories."""
    path = Path(path)
    kept, without = kept_histories(comparison, histories or {})
    look = styles(comparison)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["address"] = _address
    page = environment.get_template("page.html.j2").render(
        measure=measure_of(comparison),
        headline=headline(comparison),
        problems=problems,
        conclusion=conclusion(comparison),
        differences=differences(comparison),
        overview=overview(comparison, axis),
        is_crowd=is_crowd(comparison),
        numbers=comparison_table(comparison, axis),
        colours=[style.colour for style in look.values()],
        kept=kept,
        without=without,
        classes=draw_classes(kept, look),
        most_classes=CLASSES,
        gallery=gallery(kept) if kept else None,
        facts=facts(comparison),
        commands=comparison.sort_index().command.unique(),
        records=records_table(comparison),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        # A command line may hold characters that cannot be encoded; they become "?".
        file.write(page.encode(errors="replace"))


def _address(figure: Figure) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn(figure, 'svg')).decode()}"
