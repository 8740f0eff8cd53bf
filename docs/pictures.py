"""Draw the pictures of the documentation: each method at work, by the package's own code.

    python docs/pictures.py

Sphinx draws them when it builds the site. Nothing in them is drawn by hand: odds are counted from
what selectors keep, and every other picture shows a small training on digits.
"""

from collections.abc import Callable, Iterable
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
from torch import Tensor
from torch.utils.data import DataLoader

import selective_backprop as sb

FOLDER = Path(__file__).with_name("pictures")
_INK, _MUTED, _FAINT, _CARD = "#222222", "#666666", "#cfcfcf", "#ffffff"
# Okabe and Ito's colours, as in the lab's figures.
_GREY, _BLUE, _GREEN, _ORANGE = "#7a7a7a", "#0072b2", "#009e73", "#d55e00"
_THIRD = 1 / 3
_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10.8,
    "axes.labelsize": 10.8,
    "axes.titlesize": 10.8,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "legend.fontsize": 10.8,
    "text.color": _INK,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelsize": 10.3,
    "ytick.labelsize": 10.3,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "selective-backprop",  # the same code gives the same file
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


def _raster(
    figure: Figure,
    colour: str,
    strategies: dict[str, Callable[[sb.scorers.AbstractScorer], sb.Strategy]],
) -> None:
    """Draw what becomes of each of some examples in each epoch, one panel per strategy."""
    figure.set_figheight(0.45 + 1.75 * len(strategies))
    panels = figure.subplots(len(strategies), squeeze=False)[:, 0]
    for axes, (title, strategy) in zip(panels, strategies.items(), strict=True):
        _draw_diary(axes, trials.diary(strategy), colour)
        axes.set_title(title, loc="left", color=_MUTED)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=4, handletextpad=0.1, columnspacing=1.2)


def _draw_diary(axes: Axes, diary: trials.Diary, colour: str, size: float = 26.0) -> None:
    epochs, examples = diary.trained.shape
    looks: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        ("trained on", diary.trained, {"marker": "s", "s": size, "color": colour}),
        (
            "loaded, left out",
            diary.loaded & ~diary.trained,
            {"marker": "s", "s": size, "facecolor": _CARD, "edgecolor": "#999999", "lw": 0.9},
        ),
        ("never loaded", ~diary.loaded & ~diary.trained, {"s": 1.2, "color": "#8a8a8a"}),
        # with a rim, to be seen on any colour
        ("scored", diary.scored, {"s": 0.3 * size, "color": _INK, "edgecolor": _CARD, "lw": 0.7}),
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


def _by_rank(axes: Axes) -> None:
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["lowest", "", "median", "", "highest"])
    axes.set_xlabel("loss, by its rank among recent losses")


def _selective_backprop(figure: Figure) -> None:
    axes = figure.subplots()
    looks = ((1, _BLUE, "½"), (2, _ORANGE, "⅓"), (3, _GREEN, "¼"))
    q = np.linspace(0, 1, 101)
    for beta, colour, rate in looks:
        kept = trials.keep_odds(sb.selectors.Percentile(beta))
        axes.plot(q, q**beta, color=colour, linewidth=1.2, alpha=0.55)
        axes.plot(
            kept.ranks, kept.share, "o", ms=3.2, color=colour, label=f"rate {rate}: β = {beta}"
        )
    axes.plot([], [], color=_MUTED, linewidth=1.2, label="the rule, q ** β")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    _odds_axes(axes)
    _by_rank(axes)


def _extremes(figure: Figure) -> None:
    axes = figure.subplots()
    for selector, colour, name in (
        (sb.selectors.Top(_THIRD), _ORANGE, "top_k"),
        (sb.selectors.Bottom(_THIRD), _BLUE, "low_k"),
    ):
        for batch, dashes in ((128, "-"), (8, ":")):
            kept = trials.keep_odds(selector, batch=batch, windows=24_000 // batch)
            axes.plot(kept.ranks, kept.share, dashes, color=colour, label=f"{name}, batch {batch}")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    _odds_axes(axes)
    _by_rank(axes)


def _weighed(figure: Figure, selector: sb.selectors.AbstractSelector) -> None:
    """Draw odds and weights against the loss."""
    kept = trials.keep_odds(selector)
    left, right = figure.subplots(1, 2)
    left.plot(kept.losses, kept.share, color=_ORANGE)
    _odds_axes(left)
    right.plot(kept.losses, kept.weight, color=_BLUE)
    right.set_ylim(0, 1.15 * kept.weight.max())
    right.set_ylabel("weight if kept")
    right.grid(axis="y")
    for axes in (left, right):
        axes.set_xlim(0, 1.6)
        axes.set_xlabel("loss at its last training")


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
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


# Trainings on digits


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
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _kath18(figure: Figure) -> None:
    seen: list[tuple[float, bool]] = []
    gate = trials.WatchedGate(sb.VarianceGate(), seen)
    strategy = sb.kath18(schedule=sb.Schedule(gate=gate))
    run = trials.train(trials.make_model(), trials.digits(1500), strategy, epochs=7)
    tau, opened = np.array([seen[-1] if seen else (0.0, False) for _ in run]).T
    axes, updates = figure.subplots(), np.arange(1, len(tau) + 1)
    open_ = opened > 0
    axes.fill_between(
        updates, 0, 3, where=open_, step="mid", color="#e69f00", alpha=0.25, lw=0, label="sampling"
    )
    axes.plot(updates, tau, color=_INK, linewidth=1.4, label="τ, a moving average")
    axes.axhline(2, color=_MUTED, linewidth=1, linestyle="--", label="τ from which it pays")
    axes.set_xlim(1, updates[-1])
    axes.set_ylim(0, 1.12 * tau.max())
    axes.set_xlabel("update")
    axes.set_ylabel("τ")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _young(model: torch.nn.Module, seed: int) -> float:
    trials.finish(trials.train(model, trials.digits(), sb.traditional(), epochs=2, seed=seed))
    return 2.0


def _early_scores() -> dict[str, sb.ExampleScores]:
    """Score digits as young models see them, by both scores."""
    in_order = DataLoader(trials.digits(), batch_size=200)
    seeds = iter(range(10))
    common = (in_order, lambda: trials.make_model(seed=next(seeds)), _young)
    el2n = sb.el2n_scores(*common, models=3)
    grand = sb.grand_scores(*common, models=3, loss_fn=torch.nn.CrossEntropyLoss())
    return {"EL2N": el2n, "GraNd": grand}


def _stack(axes: Axes, scores: Tensor, parts: Iterable[tuple[str, Tensor, str]]) -> None:
    """Draw a histogram of scores as parts upon each other: label, mask and colour of each."""
    labels, masks, colours = zip(*parts, strict=True)
    axes.hist(
        [scores[mask].numpy() for mask in masks],
        bins=np.linspace(0, float(scores.max()), 31),
        stacked=True,
        color=colours,
        label=labels,
        rwidth=0.9,
    )


def _pruned(figure: Figure) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (name, scores) in zip(panels, _early_scores().items(), strict=True):
        kept = sb.prune(scores, keep=0.5).mask()
        _stack(axes, scores.scores, [("pruned", ~kept, _FAINT), ("kept half", kept, _ORANGE)])
        axes.set_xlabel(f"{name} of 600 digits")
    panels[0].set_ylabel("examples")
    panels[1].legend(loc="upper right")


def _diet_sb(figure: Figure) -> None:
    scores = _early_scores()["EL2N"]
    subset = sb.prune(scores, keep=0.7)
    strategy = sb.diet_sb(subset, rate=_THIRD)
    last = torch.zeros(len(subset.mask()), dtype=torch.bool)
    for epoch, indices in trials.train(trials.make_model(), trials.digits(), strategy, epochs=3):
        if epoch == 2:
            last[indices] = True
    axes, kept = figure.subplots(), subset.mask()
    parts = [
        ("pruned", ~kept, _FAINT),
        ("left out this epoch", kept & ~last, "#f0b48a"),
        ("trained on", last, _ORANGE),
    ]
    _stack(axes, scores.scores, parts)
    axes.set_xlabel("EL2N of 600 digits")
    axes.set_ylabel("examples")
    axes.legend(loc="upper right")


def _proxy_sb(figure: Figure) -> None:
    data, model, small = trials.digits(), trials.make_model(), trials.make_model(width=4, seed=1)
    descend = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    strategy = sb.proxy_sb(lambda: small, descend, rate=_THIRD)
    last = torch.zeros(len(data), dtype=torch.bool)
    for epoch, indices in trials.train(model, data, strategy, epochs=4):
        if epoch == 3:
            last[indices] = True
    ranks = [_ranks(trials.losses_of(each, data)) for each in (small, model)]
    axes = figure.subplots()
    for mask, colour, label in ((~last, "#bbbbbb", "left out"), (last, _ORANGE, "trained on")):
        axes.plot(*(r[mask] for r in ranks), "o", ms=3, color=colour, label=label, mew=0)
    axes.set_xlabel("loss of the small model, by rank")
    axes.set_ylabel("of the large, by rank")
    axes.set_xticks([0, 1], ["lowest", "highest"])
    axes.set_yticks([0, 1], ["lowest", "highest"])
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="last epoch")


def _ranks(losses: Tensor) -> np.ndarray:
    return losses.argsort().argsort().numpy() / (len(losses) - 1)


def _rho_loss(figure: Figure) -> None:
    data = trials.digits(flipped=0.1)
    wrong = data.tensors[1] != trials.digits().tensors[1]
    elsewhere = trials.digits(start=600)
    reference_model, model = trials.make_model(seed=1), trials.make_model()
    trials.finish(trials.train(reference_model, elsewhere, sb.traditional(), epochs=6))
    reference = trials.losses_of(reference_model, data)
    chosen = torch.zeros(len(data), dtype=torch.bool)
    for epoch, indices in trials.train(model, data, sb.rho_loss(reference, _THIRD), epochs=6):
        if epoch < 5:
            losses = trials.losses_of(model, data)
        else:
            chosen[indices] = True
    axes = figure.subplots()
    for mask, look, label in (
        (~chosen & ~wrong, {"marker": "o", "color": "#bbbbbb"}, "left out"),
        (chosen & ~wrong, {"marker": "o", "color": _ORANGE}, "trained on"),
        (~chosen & wrong, {"marker": "x", "color": "#888888"}, "wrong label, left out"),
        (chosen & wrong, {"marker": "x", "color": _ORANGE}, "wrong label, trained on"),
    ):
        axes.scatter(reference[mask], losses[mask], s=11, lw=1.1, label=label, **look)
    axes.loglog()
    axes.set_xlim(left=1e-3)
    axes.set_ylim(bottom=1e-2)
    ticks = [0.01, 0.1, 1, 10]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel("loss of the reference")
    axes.set_ylabel("loss of the model")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.1)


def _predicted_sb(figure: Figure) -> None:
    data, model, batches = trials.digits(), trials.make_model(), 38
    seen: list[np.ndarray] = []
    run = trials.train(model, data, sb.traditional(), epochs=11, rate=0.01)
    for number, _ in enumerate(run, 1):
        if number % batches == 0:
            seen.append(trials.losses_of(model, data).numpy())
    scores = np.stack([seen[6], seen[3], seen[0]])
    epochs = np.repeat(np.array([[7], [4], [1]], dtype=np.int32), len(data), axis=1)
    observed = sb.scorers.Observations(scores, epochs)
    left, right = figure.subplots(1, 2)
    example, ahead = int(scores[0].argsort()[450]), np.arange(8, 10)
    left.plot(range(1, 12), [s[example] for s in seen], color="#aaaaaa", lw=1.2, label="its loss")
    left.plot([1, 4, 7], scores[::-1, example], "o", color=_INK, ms=4, label="scored")
    for predictor, marker, colour in (
        (sb.scorers.Average(), "^", "#cc79a7"),
        (sb.scorers.GaussianProcess(points=64), "s", _GREEN),
    ):
        told = [predictor.predict(observed, int(epoch))[example] for epoch in ahead]
        left.plot(ahead, told, marker, ms=4, color=colour, label=type(predictor).__name__)
    left.set_ylim(bottom=0)
    left.set_xticks([1, 4, 7, 10])
    left.set_xlabel("epoch")
    left.set_ylabel("loss of one example")
    left.legend(fontsize=9.5, labelspacing=0.1, handlelength=1.2, borderaxespad=0)
    odds = sb.scorers.Crossing(_THIRD).predict(observed, 8)
    right.plot(_ranks(torch.tensor(scores[0])), odds, "o", ms=2, mew=0, color=_BLUE)
    right.set_xticks([0, 1], ["lowest", "highest"])
    right.set_xlabel("last loss, by rank")
    right.set_ylabel("odds by Crossing")
    right.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    right.grid(axis="y")


PICTURES: dict[str, Callable[[Figure], None]] = {
    "traditional": partial(_raster, colour=_GREY, strategies={"": lambda _: sb.traditional()}),
    "random-backprop": partial(
        _raster, colour=_BLUE, strategies={"": lambda _: sb.random_backprop(_THIRD)}
    ),
    "random-scored": partial(
        _raster, colour=_BLUE, strategies={"": lambda scorer: sb.random_k(_THIRD, scorer=scorer)}
    ),
    "selective-backprop": _selective_backprop,
    "top-k": _extremes,
    "stale-sb": partial(
        _raster,
        colour=_GREEN,
        strategies={
            "epochs=3": lambda scorer: sb.stale_sb(_THIRD, epochs=3, scorer=scorer),
            "epochs=3, spread=True": lambda scorer: sb.stale_sb(
                _THIRD, epochs=3, spread=True, scorer=scorer
            ),
        },
    ),
    "predicted-sb": _predicted_sb,
    "recorded-sb": partial(
        _raster, colour=_ORANGE, strategies={"": lambda _: sb.recorded_sb(_THIRD)}
    ),
    "proxy-sb": _proxy_sb,
    "pruned": _pruned,
    "diet-sb": _diet_sb,
    "kath18": _kath18,
    "infobatch": partial(_weighed, selector=sb.selectors.BelowMean(0.5, longer_steps=True)),
    "kakurenbo": partial(
        _raster, colour=_ORANGE, strategies={"": lambda scorer: sb.kakurenbo(scorer=scorer)}
    ),
    "easy-skip": partial(_weighed, selector=sb.selectors.Confident(0.25)),
    "auto": _auto,
    "auto-given-up": _given_up,
    "rho-loss": _rho_loss,
    "tail-sft": partial(_raster, colour=_ORANGE, strategies={"": lambda _: sb.tail_sft()}),
}

if __name__ == "__main__":
    draw_all()
