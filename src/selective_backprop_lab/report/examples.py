"""What the histories of examples say: how losses are spread, which classes and examples train.

Of several seeds, what is a number of each example or class is averaged; single examples are shown
run by run, since their predictions are a run's own.
"""

import base64
import html
import io
import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from PIL import Image

from selective_backprop_lab.analysis.grouping import Comparison
from selective_backprop_lab.analysis.statistics import Estimate, estimate
from selective_backprop_lab.records.example_history import EXTREMES, ExampleHistory, extremes
from selective_backprop_lab.records.schema import Run
from selective_backprop_lab.report.plots import BARS, MARKS, ROWS, menu, named, new_figure
from selective_backprop_lab.report.styles import Style
from selective_backprop_lab.shapes import Float

Kept = Mapping[str, Mapping[int, ExampleHistory]]
"""What became of the examples, by the group's label and the seed."""
_MOST_RUNS = 12  # whose examples a page holds with every seed; of more, the first seed of each
_LETTERS = 300  # of a text that is shown
CLASSES = 20  # rows that a reader still compares
_ALL = 99.9  # of 100 chances, and more: everything was trained on
_LIVES = 64  # that a page holds
_LEAST = 1e-5  # a loss below it is drawn there: a logarithmic axis has no zero


def group_histories(
    comparison: Comparison, histories: Mapping[Path, ExampleHistory]
) -> tuple[Kept, list[Run]]:
    """Return the histories that were kept, and the finished runs without any."""
    kept: dict[str, dict[int, ExampleHistory]] = {}
    without: list[Run] = []
    for group in comparison.groups:
        for run in group.runs:
            if run.path is not None and run.path in histories:
                kept.setdefault(group.label, {})[run.header.seed] = histories[run.path]
            else:
                without.append(run)
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
    """Return single examples of each run, with the faces that the runs share, for the page.

    The run that selected least as chance would comes first.
    """
    seen = sorted(examined(kept), key=lambda run: -unevenness(run[-1]))
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
    return {"runs": runs, "uneven": unevenness(seen[0][-1]) > 0, "images": images, "texts": texts}


def unevenness(history: ExampleHistory) -> float:
    """Return by how much more the shares vary in which examples were trained on than by chance.

    That is a difference of variances: 0 or less where all are as likely, in whatever order.
    """
    shares = history.selected / max(history.passes, 1.0)
    odds = min(float(shares.mean()), 1.0)
    return float(shares.var()) - odds * (1.0 - odds) / max(history.passes, 1.0)


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


def spread_plot(kept: Kept, look: Mapping[str, Style]) -> go.Figure | None:
    """Return how losses are spread over the examples, at a moment that the reader chooses."""
    spreads = {label: loss_spread(own.values()) for label, own in kept.items()}
    spreads = {label: spread for label, spread in spreads.items() if len(spread[1])}
    if not spreads:
        return None
    moments = max((progress for progress, _ in spreads.values()), key=len)
    losses = {
        f"{100 * share:.0f} % of the run": [
            _short(np.maximum(loss[np.abs(progress - share).argmin()], _LEAST))
            for progress, loss in spreads.values()
        ]
        for share in moments.tolist()
    }
    *_, last = losses.values()
    traces = [
        go.Scatter(
            mode="lines",
            **named(label, look[label]),
            x=x,
            y=100 * next(iter(kept[label].values())).cdf_level.astype(float),
            line=look[label].line,
            hovertemplate="%{fullData.name}<br>%{y:.3g} % of the examples at most %{x:.3~g}"
            "<extra></extra>",
        )
        for label, x in zip(spreads, last, strict=True)
    ]
    # The lowest loss of all is often far below the rest.
    known = np.concatenate([loss[:, 1:].ravel() for _, loss in spreads.values()])
    finite = known[np.isfinite(known)]
    low, high = (max(_LEAST, float(end(finite, initial=1.0))) for end in (np.min, np.max))
    y = "examples with at most this loss (%)"
    figure = new_figure(traces, x="loss", y=y, height=420)
    figure.update_xaxes(
        type="log",
        range=[math.log10(low) - 0.05, math.log10(max(high, 2 * low)) + 0.05],
        showgrid=True,
        dtick=1,
        tickformat="~g",
    )
    figure.update_yaxes(range=[0, 101])
    slider = {
        "active": len(losses) - 1,
        "currentvalue": {"prefix": "after ", "font": {"size": 13}},
        "steps": [
            {"label": moment, "method": "restyle", "args": [{"x": x}]}
            for moment, x in losses.items()
        ],
        "font": {"size": 1, "color": "rgba(0,0,0,0)"},  # the moments' names on the slider itself
        **{"y": 1, "yanchor": "bottom", "pad": {"b": 30}, "ticklen": 0, "minorticklen": 0},
    }
    return figure.update_layout(sliders=[slider], margin_t=90)


def class_plot(kept: Kept, look: Mapping[str, Style]) -> go.Figure | None:
    """Return how much of each class was trained on; None where histories name no classes.

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
    traces = []
    for position, (label, share) in enumerate(found.items()):
        means, halves = (
            np.array([getattr(share[row], name) for row in rows]) for name in ("mean", "half_width")
        )
        symbol = MARKS[position % len(MARKS)]
        traces.append(
            go.Scatter(
                mode="markers",
                **named(label, look[label]),
                y=[html.escape(names[row]) for row in rows],
                x=means,
                orientation="h",
                offsetgroup=look[label].colour,  # lengths of one strategy share a place
                marker={"size": 10, "color": look[label].colour, "symbol": symbol},
                # An interval is cut where there is nothing: below 0 and above 100.
                error_x={
                    **BARS,
                    "symmetric": False,
                    "array": np.minimum(halves, 100.0 - means),
                    "arrayminus": np.minimum(halves, means),
                },
                hovertemplate="%{fullData.name}<br>%{y}: %{x:.3g} %<extra></extra>",
            )
        )
    height = 110 + (16 + 9 * len({look[label].colour for label in found})) * len(rows)
    figure = new_figure(traces, x="trained on, of 100 chances", y="", height=height)
    figure.update_layout(scattermode="group", scattergap=0.3)
    return figure.update_layout(xaxis={"showgrid": True, "rangemode": "tozero"}, yaxis=ROWS)


def life_plot(kept: Kept, look: Mapping[str, Style]) -> go.Figure | None:
    """Return what models made of one example, which the reader chooses, epoch by epoch.

    None where no run followed an example.
    """
    runs = examined(kept)
    histories = [history for *_, history in runs]
    indices = followed(histories)[:_LIVES] if runs else []
    if not indices:
        return None
    seeds = list(dict.fromkeys(seed for _, seed, _ in runs))
    lives = {index: [_life(history, index) for history in histories] for index in indices}
    traces = []
    for axis, measure in (("y", "loss"), ("y2", "probability")):
        for (label, seed, history), life in zip(runs, lives[indices[0]], strict=True):
            style = look[label]
            own_seed = {} if seed == seeds[0] else {"visible": False}
            traces.append(
                go.Scatter(
                    mode="lines+markers",
                    **named(label, style) | own_seed,
                    showlegend=axis == "y",
                    yaxis=axis,
                    x=history.life_epoch + 1,
                    y=life[measure],
                    text=life["text"],
                    connectgaps=True,
                    line=style.line | {"width": 1.5},
                    marker={"size": 9, "color": style.colour, "symbol": life["symbol"]},
                    hovertemplate="%{fullData.name}, epoch %{x}<br>%{y:.3g}, %{text}"
                    "<extra></extra>",
                )
            )
    figure = new_figure(traces, x="epoch", y="loss", height=560)
    figure.update_layout(
        xaxis={"anchor": "y2"},
        yaxis={"domain": [0.54, 1], "rangemode": "tozero"},
        yaxis2={"domain": [0, 0.46], "title": "probability (%)", "range": [0, 104]},
    )
    images, texts = faces(histories, indices)
    examples = {}
    for index, own in lives.items():
        change = {
            "y": [life[measure] for measure in ("loss", "probability") for life in own],
            "text": [life["text"] for life in own] * 2,
            "marker.symbol": [life["symbol"] for life in own] * 2,
        }
        label, clean = labels_of(histories[0], index)
        was = f", flipped, was {clean}" if clean else ""
        words = f"example {index}, label {label}{was} {texts.get(index, '')[:40]}"
        examples[html.escape(words)] = (change, {"images[0].source": images.get(index)})
    of_seeds = {
        f"seed {each}": [{"visible": [seed == each for _, seed, _ in runs] * 2}] for each in seeds
    }
    menus = [menu(examples, side="left"), menu(of_seeds, side="right")]
    figure.update_layout(updatemenus=menus[: 1 + (len(seeds) > 1)], margin_t=80)
    if images:
        place = {"x": 1.02, "y": 1.0, "xanchor": "left", "yanchor": "top"}
        figure.add_layout_image(source=images.get(indices[0]), **place, sizex=0.3, sizey=0.14)
        figure.update_layout(margin_r=80)  # where the image stands, beside all lines
    return figure


def followed(histories: Sequence[ExampleHistory]) -> list[int]:
    """Return the examples whose lives were kept: first those of all runs, the hardest first."""
    kept = np.concatenate([history.life_index for history in histories])
    indices, counts = np.unique(kept, return_counts=True)
    hardness = np.nan_to_num(np.max([history.loss_mean[indices] for history in histories], axis=0))
    return indices[np.lexsort((-hardness, -counts))].tolist()


def _life(history: ExampleHistory, index: int) -> dict[str, Any]:
    """Return one example's life in one run; empty where it was not followed."""
    rows = np.flatnonzero(history.life_index == index)
    if not len(rows):
        return {"loss": [], "probability": [], "text": [], "symbol": "circle"}
    row = rows[0]
    selected = history.life_selected[row].tolist()
    words = {0: "scored, not trained on", 1: "trained on"}
    return {
        "loss": _short(history.life_loss[row]),
        "probability": _short(100 * history.life_probability[row]),
        "text": [words.get(count, f"trained on {count} times") for count in selected],
        "symbol": ["circle" if count else "circle-open" for count in selected],
    }


def _short(values: Any) -> list[float]:
    """Return numbers of four digits, which make a smaller page."""
    return [float(f"{value:.4g}") for value in values.tolist()]
