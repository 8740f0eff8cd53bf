"""Draw the pictures of the documentation: strategies at work, by the package's own code.

    python docs/pictures.py

Sphinx draws them when it builds the site. Nothing in them is drawn by hand: odds are counted from
what selectors keep, and the others show small trainings on digits, from `trials`.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
import trials
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import selective_backprop as sb
from selective_backprop_lab.report.panels import SETTINGS

FOLDER = Path(__file__).with_name("pictures")
_MUTED, _CARD = "#666666", "#ffffff"
# Okabe and Ito's colours, as in the lab's figures.
_GREY, _BLUE, _GREEN, _ORANGE = "#7a7a7a", "#0072b2", "#009e73", "#d55e00"
_THIRD = 1 / 3
_SIZES = dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "legend.fontsize"), 10.8)
_SETTINGS: dict[Any, Any] = {
    **SETTINGS,
    **_SIZES,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "text.parse_math": True,  # powers of ten on an axis
}


def draw(name: str, folder: Path = FOLDER) -> Path:
    """Draw one picture, 560 pixels wide, on a card that is as legible on a dark page as on a white.

    Args:
        name: a key of `PICTURES`.
        folder: where to; made where it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(5.833, 2.25), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.07, h_pad=0.06)
        figure.patch.set_visible(False)
        corner = {"boxstyle": "round,pad=0,rounding_size=0.015", "mutation_aspect": 2.8}
        card = FancyBboxPatch(
            (0, 0), 1, 1, **corner, transform=figure.transFigure, facecolor=_CARD, linewidth=0
        )
        card.set_in_layout(False)
        figure.add_artist(card).set_zorder(-1)
        PICTURES[name](figure)
        figure.savefig(path, metadata={"Date": None})
    return path


def draw_all(folder: Path = FOLDER) -> None:
    """Draw every picture."""
    for name in PICTURES:
        draw(name, folder)


# What becomes of examples, epoch by epoch


def _raster(figure: Figure, colour: str, strategies: dict[str, sb.Strategy]) -> None:
    """Draw what becomes of each of some examples in each epoch, one panel per strategy."""
    figure.set_figheight(0.45 + 1.75 * len(strategies))
    panels = figure.subplots(len(strategies), squeeze=False)[:, 0]
    for axes, (title, strategy) in zip(panels, strategies.items(), strict=True):
        _draw_diary(axes, *trials.diary(strategy), colour)
        axes.set_title(title, loc="left", color=_MUTED)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=3, handletextpad=0.1, columnspacing=1.2)


def _draw_diary(axes: Axes, loaded: np.ndarray, trained: np.ndarray, colour: str) -> None:
    epochs, examples = trained.shape
    left_out = {"facecolor": _CARD, "edgecolor": "#999999", "lw": 0.9}
    looks: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        ("trained on", trained, {"marker": "s", "s": 26.0, "color": colour}),
        ("loaded, left out", loaded & ~trained, {"marker": "s", "s": 26.0, **left_out}),
        ("never loaded", ~loaded & ~trained, {"s": 1.2, "color": "#8a8a8a"}),
    ]
    for label, where, look in looks:
        epoch, example = where.nonzero()
        axes.scatter(example, epoch, label=label, **look)
    axes.set_ylim(epochs - 0.4, -0.6)
    axes.set_xlim(-0.8, examples - 0.2)
    axes.set_yticks([0, 2, 4, 6], ["1", "3", "5", "7"])
    axes.set_xticks([0.0, examples - 1], ["easy examples", "hard ones"])
    for label, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
        label.set_horizontalalignment(side)
    axes.set_ylabel("epoch")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


# With which odds candidates are kept


def _odds_axes(axes: Axes) -> None:
    axes.set_ylim(-0.03, 1.05)
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    axes.grid(axis="y")
    axes.set_ylabel("odds of being kept")
    _name_beside(axes)


def _name_beside(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _selective_backprop(figure: Figure) -> None:
    """Draw the odds that the rule has, and points that are counted from draws."""
    axes, q = figure.subplots(), np.linspace(0, 1, 101)
    for beta, colour, rate in ((1, _BLUE, "½"), (2, _ORANGE, "⅓"), (3, _GREEN, "¼")):
        axes.plot(q, q**beta, color=colour, linewidth=1.2, alpha=0.55)
        ranks, share = trials.keep_odds(sb.selectors.Percentile(beta))
        axes.plot(ranks, share, "o", ms=3.2, color=colour, label=f"rate {rate}: β = {beta}")
    axes.plot([], [], color=_MUTED, linewidth=1.2, label="the rule, q ** β")
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["lowest", "", "median", "", "highest"])
    axes.set_xlabel("loss, by its rank among recent losses")
    _odds_axes(axes)


def _auto(figure: Figure) -> None:
    """Draw odds against the loss, after one visit of each example and after more."""
    axes, strategy = figure.subplots(), sb.auto()
    losses, draws = torch.logspace(-3, 0.5, 60), 2000
    context = sb.scorers.Context(batch_size=64, window=None, examples=len(losses))
    assert strategy.scorer is not None
    for visits, colour in ((1, _ORANGE), (5, _BLUE), (7, _GREEN), (9, _GREY)):
        ledger = sb.scorers.Ledger(len(losses), depth=2)
        ledger.record(torch.arange(len(losses)), losses, 0)
        for _ in range(visits):
            ledger.count(torch.arange(len(losses)))
        scores = strategy.scorer.start(context).recall(ledger, 1)
        assert scores is not None
        running, generator = strategy.selector.start(context), torch.Generator().manual_seed(0)
        history = sb.selectors.History(1)
        drawn = [running.select(scores, history, generator).rows for _ in range(draws)]
        odds = torch.cat(drawn).bincount(minlength=len(losses)) / draws
        label = f"{visits} visit{'s' * (visits > 1)} on average"
        axes.plot(losses, odds, color=colour, label=label)
    _odds_axes(axes)
    axes.set_xscale("log")
    axes.set_xlabel("higher one of the last two losses")


def _given_up(figure: Figure) -> None:
    """Draw which share of right and of wrong labels each epoch of auto trains on."""
    epochs, right = 14, trials.digits(1500).tensors[1]
    for axes, flipped in zip(figure.subplots(1, 2, sharey=True), (0.0, 0.2), strict=True):
        data = trials.digits(1500, flipped=flipped)
        wrong = data.tensors[1] != right
        trained = torch.zeros(epochs, len(data))
        for epoch, indices in trials.train(trials.make_model(), data, sb.auto(), epochs=epochs):
            trained[epoch, indices] = 1.0
        lines = [("right labels", ~wrong, _BLUE), ("wrong labels", wrong, _ORANGE)]
        for label, mask, colour in lines[: 1 + bool(flipped)]:
            shares = trained[:, mask].mean(1)
            axes.plot(range(1, epochs + 1), shares, color=colour, marker="o", ms=3, label=label)
        axes.set_ylim(0, 1.05)
        axes.set_xlabel("epoch")
        axes.set_title("a fifth of the labels wrong" if flipped else "no label wrong", fontsize=9)
    figure.axes[0].set_ylabel("share trained on")
    _name_beside(axes)


def _rastered(colour: str, **strategies: sb.Strategy) -> Callable[[Figure], None]:
    titled = {"" if len(strategies) == 1 else name: each for name, each in strategies.items()}
    return partial(_raster, colour=colour, strategies=titled)


_STALE = {
    "epochs=3": sb.stale_sb(_THIRD, epochs=3),
    "epochs=3, spread=True": sb.stale_sb(_THIRD, epochs=3, spread=True),
}
PICTURES: dict[str, Callable[[Figure], None]] = {
    "selective-backprop": _selective_backprop,
    "stale-sb": _rastered(_GREEN, **_STALE),
    "kakurenbo": _rastered(_ORANGE, own=sb.kakurenbo()),
    "auto": _auto,
    "auto-given-up": _given_up,
}

if __name__ == "__main__":
    draw_all()
