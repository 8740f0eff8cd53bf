"""What the histories of examples say: how losses are spread, which classes and examples train.

Of several seeds, what is a number of each example or class is averaged; single examples are shown
run by run, since their predictions are a run's own.
"""

import base64
import io
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from selective_backprop_lab.analysis.estimates import Estimate, estimate
from selective_backprop_lab.analysis.queries import counted
from selective_backprop_lab.records.example_history import EXTREMES, ExampleHistory, extremes
from selective_backprop_lab.records.frame import each_run
from selective_backprop_lab.report.panels import DASHES, FAINT, SETTINGS
from selective_backprop_lab.report.styles import Style
from selective_backprop_lab.shapes import Float

Kept = Mapping[str, Mapping[int, ExampleHistory]]
"""What became of the examples, by the arm's label and the seed."""
_MOST_RUNS = 12  # whose examples a page holds with every seed; of more, the first seed of each
_LETTERS = 300  # of a text that is shown
CLASSES = 20  # rows that a reader still compares
_ALL = 99.9  # of 100 chances, and more: everything was trained on
LIVES = 3  # that are drawn
_LEAST = 1e-5  # a loss below it is drawn there: a logarithmic axis has no zero


def kept_histories(
    comparison: pd.DataFrame, histories: Mapping[Path, ExampleHistory]
) -> tuple[Kept, list[str]]:
    """Return the histories that were kept, and the names of the finished runs without any."""
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
    """Return label, seed and history of the runs of which a page shows single examples."""
    several = sum(map(len, kept.values())) > _MOST_RUNS
    return [
        (label, seed, history)
        for label, own in kept.items()
        for seed, history in list(own.items())[: 1 if several else None]
    ]


def loss_spread(
    histories: Collection[ExampleHistory],
) -> tuple[Float[np.ndarray, " evaluation"], Float[np.ndarray, "evaluation level"]]:
    """Return each evaluation's share of the run, and the quantiles of losses, as means over seeds.

    Seeds that were evaluated less often than the others, or had nothing to show, are left out.
    """
    most = max(history.cdf_loss.shape for history in histories)
    alike = [history for history in histories if history.cdf_loss.shape == most]
    losses = np.mean([history.cdf_loss.astype(float) for history in alike], axis=0)
    return np.mean([history.cdf_progress for history in alike], axis=0), losses


def class_shares(histories: Collection[ExampleHistory]) -> list[Estimate]:
    """Return for each class how often, per hundred times that it came up, it was trained on.

    An example came up once in each pass over the data, or over what pruning left of it: of a class
    that was pruned away, the share is low.

    Returns:
        In percent, with the interval over seeds; NaN for a class of which there is no example.
    """
    shares = []
    for history in histories:
        classes = len(history.class_name)
        trained = np.bincount(history.label, weights=history.selected, minlength=classes)
        chances = history.passes * np.bincount(history.label, minlength=classes)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares.append(100.0 * trained / chances)
    return [estimate(column) for column in np.transpose(shares).tolist()]


def class_of(history: ExampleHistory, number: int) -> str:
    """Return what a class is called: its name, or its number where names were not kept."""
    known = 0 <= number < len(history.class_name)
    return history.class_name[number] if known else str(number)


def labels_of(history: ExampleHistory, index: int) -> tuple[str, str]:
    """Return an example's label, and what it was before it was flipped, else nothing."""
    label = int(history.label[index])
    clean = label if history.label_clean is None else int(history.label_clean[index])
    return class_of(history, label), "" if clean == label else class_of(history, clean)


def gallery(kept: Kept) -> dict[str, Any]:
    """Return single examples of each run, with the faces that the runs share, for the page."""
    seen = examined(kept)
    runs: list[dict[str, Any]] = []
    for label, seed, history in seen:
        orders = extremes(history.selected, history.loss_mean)
        count = min(EXTREMES, len(history) // 2)  # of few examples, none stands on both sides
        sides = {
            side: [_card(history, index) for index in orders[side][:count].tolist()]
            for side in ("most", "least")
        }
        even = len(np.unique(history.selected)) == 1  # all were trained on equally often
        passes = round(history.passes, 2)
        runs.append({"name": f"{label}, seed {seed}", "even": even, "passes": passes, **sides})
    shown = {card["number"] for own in runs for card in own["most"] + own["least"]}
    images, texts = faces([history for *_, history in seen], shown)
    return {"runs": runs, "images": images, "texts": texts}


def _card(history: ExampleHistory, index: int) -> dict[str, Any]:
    """Return what the page says of one example in one run."""
    prediction, confidence = int(history.prediction[index]), float(history.confidence[index])
    sure = f" ({100 * confidence:.0f}\u00a0%)" if np.isfinite(confidence) else ""
    label, clean = labels_of(history, index)
    seen = f"predicted {class_of(history, prediction)}{sure}"
    return {
        "number": index,
        "label": label,
        "clean": clean,
        "prediction": "never seen" if prediction < 0 else seen,
        "is_wrong": prediction not in {int(history.label[index]), -1},
        "selected": int(history.selected[index]),
    }


def faces(
    histories: Sequence[ExampleHistory], indices: Collection[int]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return what some examples look like: addresses that hold their images, and their texts."""
    images: dict[int, str] = {}
    texts: dict[int, str] = {}
    for history in histories:
        for place, index in enumerate(history.portrait_index.tolist()):
            if index not in indices or index in images:
                continue
            if history.portrait_image is not None:
                images[index] = _as_png(history.portrait_image[place])
            elif history.portrait_text is not None:
                texts[index] = textwrap.shorten(history.portrait_text[place], _LETTERS)
    return images, texts


def _as_png(image: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(np.squeeze(image)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def widest_classes(shares: Sequence[Sequence[Estimate]], count: int) -> list[int]:
    """Return so many classes in which groups differ most, in the classes' own order."""
    known = np.nan_to_num([[share.mean for share in own] for own in shares])
    # How much a strategy selects in all is another matter.
    in_all = known.mean(axis=1, keepdims=True)
    relative = known / np.where(in_all > 0, in_all, 1.0)
    apart = np.ptp(relative, axis=0)
    if len(relative) == 1:
        apart = np.where(
            np.isfinite([share.mean for share in shares[0]]), np.abs(relative[0] - 1.0), 0.0
        )
    return sorted(np.argsort(-apart, kind="stable")[:count].tolist())


def draw_spread(kept: Kept, look: Mapping[str, Style]) -> Figure | None:
    """Draw how losses are spread over the examples, in the middle of the run and at its end."""
    spreads = {label: loss_spread(own.values()) for label, own in kept.items()}
    spreads = {label: spread for label, spread in spreads.items() if len(spread[1])}
    if not spreads:
        return None
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(11, 3.8), layout="constrained")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, moment in zip(panels, (0.5, 1.0), strict=True):
            for label, (progress, losses) in spreads.items():
                x = np.maximum(losses[np.abs(progress - moment).argmin()], _LEAST)
                y = 100 * next(iter(kept[label].values())).cdf_level.astype(float)
                axes.plot(x, y, label=label, **_line(look[label]))
            axes.set_xscale("log")
            axes.set_title(f"After {moment:.0%} of the run", loc="left", fontsize=9)
            axes.set_xlabel("loss")
            axes.grid(True, color=FAINT, linewidth=0.6)
        panels[0].set_ylabel("examples with at most this loss (%)")
        panels[0].legend(frameon=False, fontsize=7.5)
    return figure


def draw_classes(kept: Kept, look: Mapping[str, Style]) -> Figure | None:
    """Draw how much of each class was trained on; None where histories name no classes.

    What trained on everything is left out.
    """
    names = examined(kept)[0][-1].class_name if kept else ()
    found = {label: class_shares(own.values()) for label, own in kept.items()} if names else {}
    found = {
        label: share for label, share in found.items() if any(each.mean < _ALL for each in share)
    }
    if not found:
        return None
    rows = widest_classes([*found.values()], CLASSES)
    with matplotlib.rc_context(SETTINGS):
        height = 1.2 + (0.15 + 0.1 * len(found)) * len(rows)
        figure = Figure(figsize=(8, height), layout="constrained")
        axes = figure.subplots()
        for position, (label, share) in enumerate(found.items()):
            means, halves = (
                np.array([getattr(share[row], name) for row in rows])
                for name in ("mean", "half_width")
            )
            places = np.arange(len(rows)) + 0.7 * ((position + 0.5) / len(found) - 0.5)
            # An interval is cut where there is nothing: below 0 and above 100.
            ends = np.maximum(0.0, 100.0 - means)  # what is shown once more often is above
            bars = np.nan_to_num([np.minimum(halves, means), np.minimum(halves, ends)])
            colour, hollow = look[label].colour, look[label].dash != "solid"
            axes.errorbar(
                means,
                places,
                xerr=bars,
                fmt="o",
                color=colour,
                markerfacecolor="white" if hollow else colour,
                elinewidth=1,
                label=label,
            )
        axes.set_yticks(range(len(rows)), [names[row] for row in rows])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("trained on, of 100 chances")
        axes.grid(True, axis="x", color=FAINT, linewidth=0.6)
        axes.legend(frameon=False, fontsize=7.5)
    return figure


def draw_lives(kept: Kept, look: Mapping[str, Style]) -> Figure | None:
    """Draw what models made of the hardest examples, epoch by epoch, in the first seed of each arm.

    A full dot stands where the example was trained on, a ring where it was scored and left out.
    None where no run followed an example.
    """
    firsts = {label: next(iter(own.values())) for label, own in kept.items()}
    indices = followed([*firsts.values()])[:LIVES] if firsts else []
    if not indices:
        return None
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(11, 3.4), layout="constrained")
        panels = figure.subplots(1, len(indices), sharey=True, squeeze=False)[0]
        for axes, index in zip(panels, indices, strict=True):
            for label, history in firsts.items():
                for row in np.flatnonzero(history.life_index == index):
                    x, y = history.life_epoch + 1, history.life_loss[row]
                    seen = np.isfinite(y)
                    axes.plot(x[seen], y[seen], label=label, **_line(look[label]))
                    trained = history.life_selected[row] > 0
                    for dots, face in ((trained, look[label].colour), (~trained, "white")):
                        style = {"markerfacecolor": face, "markersize": 4, "linestyle": ""}
                        axes.plot(x[dots], y[dots], "o", color=look[label].colour, **style)
            name, clean = labels_of(next(iter(firsts.values())), index)
            was = f", flipped, was {clean}" if clean else ""
            axes.set_title(f"Example {index}, label {name}{was}", loc="left", fontsize=9)
            axes.set_xlabel("epoch")
            axes.grid(True, axis="y", color=FAINT, linewidth=0.6)
        panels[0].set_ylabel("loss")
        panels[0].legend(frameon=False, fontsize=7.5)
    return figure


def followed(histories: Sequence[ExampleHistory]) -> list[int]:
    """Return the examples whose lives were kept: first the ones of all runs, hardest first."""
    kept = np.concatenate([history.life_index for history in histories])
    indices, counts = np.unique(kept, return_counts=True)
    hardness = np.nan_to_num(np.max([history.loss_mean[indices] for history in histories], axis=0))
    return indices[np.lexsort((-hardness, -counts))].tolist()


def _line(style: Style) -> dict[str, Any]:
    return {"color": style.colour, "linestyle": DASHES[style.dash], "linewidth": 0.7 * style.width}
