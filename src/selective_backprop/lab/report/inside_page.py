"""The part of the report that looks inside: losses, classes, examples, and what is missing."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from selective_backprop.lab.analysis.grouping import Comparison
from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.example_gallery import gallery
from selective_backprop.lab.report.inside import Inside, look_inside
from selective_backprop.lab.report.inside_plots import CLASSES, class_plot, life_plot, spread_plot
from selective_backprop.lab.report.markup import figure
from selective_backprop.lab.report.plots import Plot, shown_at_first
from selective_backprop.lab.report.styles import styles
from selective_backprop.lab.training.example_summary import EXTREMES

_HOW = (
    "compare and train keep what becomes of each training example in a file beside the record, "
    "whose name ends in .examples.npz; reproduce and study do not. Records of older code have "
    "none: the same compare or train with --again runs them anew and keeps it; the old records "
    "stay beside the new, as .replaced."
)


@dataclass(frozen=True)
class InsidePart:
    """A part of the page: its HTML, and what the script needs for it."""

    body: list[str]
    plots: list[Plot]
    gallery: dict[str, Any] | None = None


def inside_part(comparison: Comparison, histories: Mapping[Path, ExampleHistory]) -> InsidePart:
    """Return what there is to show of the examples, or what is missing and how to get it."""
    insides, without = look_inside(comparison, histories)
    missing = [*_missing(insides, without)]
    if not insides:
        return InsidePart(missing, [])
    look = styles(comparison.arms)
    shown = frozenset(arm.label for arm in shown_at_first(comparison))
    if not any(inside.arm.label in shown for inside in insides):
        shown = frozenset(inside.arm.label for inside in insides)
    spread = spread_plot(insides, look, shown)
    classes = class_plot(insides, look, shown)
    life = life_plot(insides, look, shown)
    found = gallery(insides, look)
    body = [*missing, *_spread(spread), *_classes(classes, insides), *_examples(insides, found)]
    body += _life(life)
    plots = [plot for plot in (spread, classes, life) if plot]
    return InsidePart(body, plots, found)


def _missing(insides: Sequence[Inside], without: Sequence[Run]) -> Iterable[str]:
    if insides and not without:
        return
    which = "No finished run here says what became of its examples."
    if insides:
        names = ", ".join(run.name for run in without[:4])
        more = f" and {len(without) - 4} more" if len(without) > 4 else ""
        which = f"What became of the examples is not kept for {names}{more}."
    yield "<h2>Inside the training</h2>"
    yield f'<p class="quiet">{html.escape(f"{which} {_HOW}")}</p>'


def _spread(plot: Plot | None) -> Iterable[str]:
    if plot is None:
        return
    yield "<h2>How losses are spread over the examples</h2>"
    yield from figure(
        plot,
        "Of each training example the loss that was last seen, in training or in scoring; move the "
        "slider to go through the run. A line further left is a model that has learned more of "
        "the examples; where it is flat on the right, a few are much harder than the rest. Mean "
        "over seeds of each quantile. An arm that leaves examples out without scoring them saw "
        "some losses long ago. Losses below 0.00001 are drawn there.",
    )


def _classes(plot: Plot | None, insides: Sequence[Inside]) -> Iterable[str]:
    if plot is None:
        return
    count = len(insides[0].histories[0].class_name)
    some = ""
    if count > CLASSES:
        some = f" Of {count} classes, the {CLASSES} in which the arms differ most."
    yield "<h2>How much of each class was trained on</h2>"
    yield from figure(
        plot,
        "Of every hundred times that an example of the class came up for training, how often it "
        "was trained on: mean over seeds, with the part of the 95 % interval that lies between 0 "
        "and 100. Points of one arm that lie one below the other are classes that it treats alike. "
        "Of pruned data, what was pruned away "
        f"counts as not trained on.{some}",
    )


def _examples(insides: Sequence[Inside], found: Mapping[str, Any]) -> Iterable[str]:
    arms = list(dict.fromkeys(run["arm"] for run in found["runs"]))
    # The arm that treats examples most differently has the most to show.
    first = max(insides, key=lambda inside: np.var(inside.histories[0].selected)).arm.label
    yield "<h2>Which examples were trained on</h2>"
    yield '<div class="choices"><div><label for="gallery-arm">arm</label>'
    yield '<select id="gallery-arm">'
    for arm in arms:
        chosen = " selected" if arm == first else ""
        text = html.escape(arm)
        yield f'<option value="{text}"{chosen}>{text}</option>'
    yield '</select></div><div><label for="gallery-seed">seed</label>'
    yield '<select id="gallery-seed"></select></div></div>'
    yield '<p class="quiet" id="gallery-note"></p>'
    yield "<h3>Trained on most often</h3>"
    yield '<div class="portraits" id="gallery-most"></div>'
    yield "<h3>Trained on least often</h3>"
    yield '<div class="portraits" id="gallery-least"></div>'
    yield (
        f'<p class="quiet">Up to {EXTREMES} of each, as they are in the data set, without '
        "augmentation; the prediction is the model's when it last saw the example in this run. A "
        "press on one shows its life, where that was kept.</p>"
    )


def _life(plot: Plot) -> Iterable[str]:
    yield "<h2>The life of one example</h2>"
    yield '<div class="choices"><div><label for="life-example">example</label>'
    yield '<select id="life-example"></select></div><div><span>show</span>'
    yield '<button type="button" data-measure="loss" aria-pressed="true">loss</button>'
    yield (
        '<button type="button" data-measure="probability" aria-pressed="false">'
        "probability of its label</button></div></div>"
    )
    yield '<div class="face" id="life-face"></div>'
    yield from figure(
        plot,
        "What the model made of the example when it last saw it in each epoch, in the seed chosen "
        "above. Full dots: it was trained on in that epoch. Rings: it was scored and left out. No "
        "dot: it was not seen. In training the model is in training mode, in scoring in eval "
        "mode, and both see it augmented.",
    )
