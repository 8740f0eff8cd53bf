"""The report of a comparison: one HTML file that opens anywhere, also offline."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

from selective_backprop_lab.analysis.comparison import is_crowd, measure_of
from selective_backprop_lab.analysis.facts import facts, headline
from selective_backprop_lab.analysis.findings import conclusion
from selective_backprop_lab.analysis.queries import counted
from selective_backprop_lab.analysis.summary import comparison_table, records_table
from selective_backprop_lab.records.example_history import EXTREMES, ExampleHistory, extremes
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.frame import each_run
from selective_backprop_lab.report.figures import differences, drawn, overview
from selective_backprop_lab.report.panels import styles


def write_report(
    comparison: pd.DataFrame,
    path: Path,
    *,
    histories: Mapping[Path, ExampleHistory] | None = None,
    problems: Sequence[str] = (),
    axis: str = "seconds",
) -> None:
    """Write the report of a comparison, with the seconds of `axis` and examples' histories."""
    kept, without = kept_histories(comparison, histories or {})
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["address"] = lambda figure: (
        f"data:image/svg+xml;base64,{base64.b64encode(drawn(figure, 'svg')).decode()}"
    )
    page = environment.get_template("page.html.j2").render(
        measure=measure_of(comparison),
        headline=headline(comparison),
        problems=problems,
        conclusion=conclusion(comparison),
        differences=differences(comparison),
        overview=overview(comparison, axis),
        is_crowd=is_crowd(comparison),
        numbers=comparison_table(comparison, axis),
        colours=[style.colour for style in styles(comparison).values()],
        kept=kept,
        without=without,
        gallery=gallery(kept) if kept else None,
        facts=facts(comparison),
        commands=comparison.sort_index().command.unique(),
        records=records_table(comparison),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        # A command line may hold characters that cannot be encoded; they become "?".
        file.write(page.encode(errors="replace"))


Kept = Mapping[str, Mapping[int, ExampleHistory]]
"""The histories of the examples, by the arm's label and the seed."""
_MOST_RUNS = 12  # with more runs, a page shows the examples of only the first seed of each arm


def kept_histories(
    comparison: pd.DataFrame, histories: Mapping[Path, ExampleHistory]
) -> tuple[Kept, list[str]]:
    """Return the histories of finished runs, and the names of finished runs without a history."""
    kept: dict[str, dict[int, ExampleHistory]] = {}
    without: list[str] = []
    for run in each_run(counted(comparison)):
        path = Path(run.folder, run.run)
        if path in histories:
            kept.setdefault(run.label, {})[run.seed] = histories[path]
        else:
            without.append(run.run)
    return kept, without


def examined(kept: Kept) -> list[tuple[str, int, ExampleHistory]]:
    """Return label, seed and history of the runs whose examples a page shows."""
    several = sum(map(len, kept.values())) > _MOST_RUNS
    return [
        (label, seed, history)
        for label, own in kept.items()
        for seed, history in list(own.items())[: 1 if several else None]
    ]


def gallery(kept: Kept) -> dict[str, Any]:
    """Return single examples of each run for the page, with pictures that all runs share."""
    seen = examined(kept)
    runs: list[dict[str, Any]] = []
    for label, seed, history in seen:
        orders = extremes(history.selected, history.loss_mean)
        count = min(EXTREMES, len(history) // 2)  # so that no example is on both sides
        sides = {
            side: [_card(history, index) for index in orders[side][:count].tolist()]
            for side in ("most", "least")
        }
        even = len(np.unique(history.selected)) == 1  # all were trained on equally often
        passes = round(history.passes, 2)
        runs.append({"name": f"{label}, seed {seed}", "even": even, "passes": passes, **sides})
    shown = {card["number"] for own in runs for card in own["most"] + own["least"]}
    images = {}
    for index, image in portraits([history for *_, history in seen]).items():
        if index in shown:
            file = io.BytesIO()
            image.save(file, "PNG", optimize=True)
            images[index] = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"runs": runs, "images": images}


def _card(history: ExampleHistory, index: int) -> dict[str, Any]:
    prediction, confidence = int(history.prediction[index]), float(history.confidence[index])
    sure = f" ({100 * confidence:.0f}\u00a0%)" if np.isfinite(confidence) else ""
    label = int(history.label[index])
    clean = label if history.label_clean is None else int(history.label_clean[index])
    names = history.class_name
    return {
        "number": index,
        "label": names[label],
        "clean": "" if clean == label else names[clean],
        "prediction": "never seen" if prediction < 0 else f"predicted {names[prediction]}{sure}",
        "is_wrong": prediction not in {label, -1},
        "selected": int(history.selected[index]),
    }


def portraits(histories: Sequence[ExampleHistory]) -> dict[int, Image.Image]:
    """Return all pictures that were recorded, by the examples' indices."""
    return {
        index: Image.fromarray(np.squeeze(image))
        for history in histories
        if history.portrait_image is not None
        for index, image in zip(
            history.portrait_index.tolist(), history.portrait_image, strict=True
        )
    }
