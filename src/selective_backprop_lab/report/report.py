"""The report of a comparison: one HTML file that opens anywhere, also offline."""

import base64
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from PIL import Image

from selective_backprop_lab.analysis.comparison import CROWD, measure_of
from selective_backprop_lab.analysis.estimates import Estimate, estimate
from selective_backprop_lab.analysis.facts import facts, headline
from selective_backprop_lab.analysis.findings import conclusion
from selective_backprop_lab.analysis.queries import counted
from selective_backprop_lab.analysis.summary import MEANINGS, comparison_table, records_table
from selective_backprop_lab.records.example_history import EXTREMES, ExampleHistory, extremes
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.frame import each_run
from selective_backprop_lab.report import panels
from selective_backprop_lab.report.figures import differences, drawn, overview
from selective_backprop_lab.report.panels import FAINT, SETTINGS, Style, styles


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
    look = styles(comparison)
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
        stacked=overview(comparison, axis, stacked=True),
        meanings=MEANINGS,
        is_crowd=comparison.arm.nunique() > CROWD,
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


Kept = Mapping[str, Mapping[int, ExampleHistory]]
"""The histories of the examples, by the arm's label and the seed."""
_MOST_RUNS = 12  # with more runs, a page shows the examples of only the first seed of each arm
CLASSES = 20  # the most rows that a reader can compare
_ALL = 99.9  # percent; from here on, everything was trained on


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


def class_shares(histories: Collection[ExampleHistory]) -> list[Estimate]:
    """Return how often the examples of each class were trained on, in percent of all passes."""
    shares = []
    for history in histories:
        classes = len(history.class_name)
        trained = np.bincount(history.label, weights=history.selected, minlength=classes)
        chances = history.passes * np.bincount(history.label, minlength=classes)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares.append(100.0 * trained / chances)
    return [estimate(column) for column in np.transpose(shares).tolist()]


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


def widest_classes(shares: Sequence[Sequence[Estimate]], count: int) -> list[int]:
    """Return the `count` classes in which strategies differ most, in the order of the classes."""
    known = np.nan_to_num([[share.mean for share in own] for own in shares])
    # Shares are compared relative to how much a strategy selects in all.
    in_all = known.mean(axis=1, keepdims=True)
    relative = known / np.where(in_all > 0, in_all, 1.0)
    apart = np.ptp(relative, axis=0)
    if len(relative) == 1:
        known_one = np.isfinite([share.mean for share in shares[0]])
        apart = np.where(known_one, np.abs(relative[0] - 1.0), 0.0)
    return sorted(np.argsort(-apart, kind="stable")[:count].tolist())


def draw_classes(kept: Kept, look: Mapping[str, Style]) -> Figure | None:
    """Draw how much of each class was trained on, for strategies that left out something."""
    found = {label: class_shares(own.values()) for label, own in kept.items()}
    found = {label: own for label, own in found.items() if any(each.mean < _ALL for each in own)}
    if not found:
        return None
    names = examined(kept)[0][-1].class_name
    rows = widest_classes([*found.values()], CLASSES)
    with matplotlib.rc_context(SETTINGS):
        height = 1.2 + (0.15 + 0.1 * len(found)) * len(rows)
        figure = Figure(figsize=(panels.ALONE, height), layout="constrained")
        axes = figure.subplots()
        for position, (label, share) in enumerate(found.items()):
            means = np.array([share[row].mean for row in rows])
            halves = np.array([share[row].half_width for row in rows])
            places = np.arange(len(rows)) + 0.7 * ((position + 0.5) / len(found) - 0.5)
            # Intervals are cut off below 0 and above 100; a mean may exceed 100.
            bars = np.nan_to_num(np.minimum(halves, [means, np.maximum(0.0, 100.0 - means)]))
            colour, hollow = look[label].colour, look[label].dash != "solid"
            dot: dict[str, Any] = {
                "color": colour,
                "markerfacecolor": "white" if hollow else colour,
            }
            axes.errorbar(means, places, xerr=bars, fmt="o", elinewidth=1, label=label, **dot)
        axes.set_yticks(range(len(rows)), [names[row] for row in rows])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("trained on, of 100 chances")
        axes.grid(True, axis="x", color=FAINT, linewidth=0.6)
        axes.legend(frameon=False, fontsize=7.5)
    return figure
