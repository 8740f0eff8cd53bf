"""Figures 2 to 5, 8, 9 and 15: losses, gradients and confidences inside a run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import attrgetter
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from reproductions import drawing, measures, probes
from reproductions.claims import CERTAIN, Amount, Answer, Case, Measure
from reproductions.measures import Evidence, Panel, mean_of, observed, over_seeds, paired
from reproductions.settings import STYLES, Arm
from selective_backprop_lab.analysis.estimates import Estimate, estimate
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import Table, in_words, percent, with_interval

# Figure 2: the easiest and the hardest images
_ENDS, SHOWN = {"easiest": 1, "hardest": -1}, 10  # images of each kind
TENTH = 0.1  # of the examples, by which seeds are compared


def draw_easiest(evidence: Evidence) -> Drawing:
    def draw(axes: Axes, panel: Panel, name: str, sign: int) -> None:
        shown = _easiest_first(panel)[::sign][:SHOWN]
        drawing.draw_images(axes, panel.images, shown, f"{panel.title}, {name}")

    lists: list[list[drawing.Cell]] = [
        [partial(draw, panel=panel, name=name, sign=sign) for panel in evidence.panels]
        for name, sign in _ENDS.items()
    ]
    return drawing.sheet(evidence, lists, height=1.75)


def _easiest_first(panel: Panel) -> list[int]:
    return measures.mean_over(panel.runs, probes.LossRanks, "ranks").argsort(stable=True).tolist()


def easiest_table(panel: Panel) -> Table:
    data, rows = panel.images, []
    for name, sign in _ENDS.items():
        indices = _easiest_first(panel)[::sign][:5]
        images = [f"{index} {data.class_names[int(data.train_labels[index])]}" for index in indices]
        rows.append((name, *images, with_interval(shared(panel, sign))))
    title = f"{panel.title}: number and class of the first five"
    head = ("", *map(str, range(1, 6)), f"{percent(TENTH)} shared with the other seeds, %")
    return Table(head, rows, title)


def shared(panel: Panel, sign: int) -> Estimate:
    """Return how much of its lowest (or at -1 highest) tenth a seed shares with the others."""
    pairs = _beside_the_others(panel.runs)
    return estimate([measures.overlap(sign * mine, sign * mean, TENTH) for mine, mean in pairs])


def _beside_the_others(runs: pd.DataFrame) -> Iterator[tuple[Tensor, Tensor]]:
    ranks = [*measures.seen_last(runs, probes.LossRanks, "ranks").values()]
    for place, mine in enumerate(ranks):
        if others := ranks[:place] + ranks[place + 1 :]:
            yield mine, torch.stack(others).double().mean(0)


def _rank_of_easiest(case: Case) -> Estimate:
    pairs = _beside_the_others(case.mine)
    found = (mine[mean.argsort(stable=True)[:SHOWN]].double().mean() for mine, mean in pairs)
    return estimate([100 * float(rank) / (probes.MOST - 1) for rank in found])


# Figures 3 and 4: the distribution of losses, and the odds that follow from it
_BETAS = (1, 2, 3)
_MOMENTS = {"a quarter through": 0.25, "halfway": 0.5, "at the end": 1.0}
_FLOOR = 1e-4  # lower losses are drawn here


def losses_table(panel: Panel) -> Table:
    shares = (10, 25, 50, 75, 90)
    seen = {name: _quantiles_at(panel, moment) for name, moment in _MOMENTS.items()}
    rows = [(name, *(_at_share(each, share) for share in shares)) for name, each in seen.items()]
    return Table(("loss", *(f"{share} % are below" for share in shares)), rows, panel.title)


def odds_by_loss_table(panel: Panel) -> Table:
    losses, rows = _quantiles_at(panel, 0.5), []
    for share in (10, 50, 90):
        odds = [percent((share / 100) ** beta) for beta in _BETAS]
        rows.append((f"{share} % of the losses are lower", _at_share(losses, share), *odds))
    return Table(("example", "loss", *(f"β = {beta}" for beta in _BETAS)), rows, panel.title)


def _quantiles_at(panel: Panel, progress: float) -> list[float]:
    seen = observed(panel.runs, probes.LossQuantiles)
    nearest = (seen.progress - progress).abs().groupby(seen.seed).idxmin()
    return [fmean(values) for values in zip(*seen.quantiles[nearest], strict=True)]


def _at_share(quantiles: Sequence[float], share: int) -> str:
    return f"{quantiles[round(share * (len(quantiles) - 1) / 100)]:.4f}"


def _draw_quantiles(
    evidence: Evidence, moments: Sequence[tuple[str, float, int]], label: str
) -> Drawing:
    """Draw the odds of each loss at a moment: the share of lower ones, to the power of beta."""

    def draw(axes: Axes, panel: Panel) -> None:
        lines: list[drawing.Line] = []
        for (name, moment, beta), style in zip(moments, STYLES, strict=False):
            losses = [max(loss, _FLOOR) for loss in _quantiles_at(panel, moment)]
            odds = [100 * share**beta for share in np.linspace(0, 1, len(losses))]
            lines.append((name, style, measures.curve_at(losses, [odds])))
        drawing.draw_lines(axes, lines, named=True)
        look: dict[str, Any] = {"xscale": "log", "ylim": (0, 103), "legend": "lower right"}
        drawing.finish(axes, panel.title, xlabel="cross-entropy loss", ylabel=label, **look)
        # Where losses span about a decade, powers of ten alone would be one label, or none.
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if high < 1000 * low else (1,)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())

    return drawing.side_by_side(evidence, draw)


_AT = [(name, moment, 1) for name, moment in _MOMENTS.items()]
_FOR = [(f"β = {beta}: {percent(1 / (beta + 1))} selected", 0.5, beta) for beta in _BETAS]
draw_losses = partial(_draw_quantiles, moments=_AT, label="share of the examples (%)")
draw_odds_by_loss = partial(_draw_quantiles, moments=_FOR, label="probability of selection (%)")


# Figure 5: how near the gradient of a part comes to that of the whole
FIRST = 1  # epochs: claims are about the time from here on
# The name of each measure, and the most that it can be.
_MEASURED = {"cosine": ("cosine", 1.0), "sign": ("equal signs (%)", 100.0)}
_KINDS = {"high-loss": "solid", "random": "dash"}


def draw_gradients(evidence: Evidence) -> Drawing:
    def draw(axes: Axes, panel: Panel, key: str) -> None:
        (label, most), epochs, lines = _MEASURED[key], panel.setting.recipe.epochs, []
        for (place, share), (kind, dash) in product(enumerate(probes.KEPT), _KINDS.items()):
            name = f"{percent(share)} {'highest' if kind == 'high-loss' else 'random'}"
            style = replace(STYLES[place], dash=dash)
            pick = _part(key, kind, place)
            seen = measures.follow(panel.runs, probes.BatchGradients, pick, epochs)
            lines.append((name, style, seen))
        means = [value for *_, line in lines for value in line.mean]
        room = 0.1 * (max(means) - min(means)) or 0.1
        drawing.draw_lines(axes, lines)
        limits = min(means) - room, min(max(means) + room, most)  # up to what can be reached
        look: dict[str, Any] = {"xlim": (0, epochs), "ylim": limits, "xlabel": "epoch"}
        drawing.finish(axes, panel.title, lines, ylabel=label, **look)

    cells: list[list[drawing.Cell]] = [
        [partial(draw, panel=panel, key=key) for key in _MEASURED] for panel in evidence.panels
    ]
    return drawing.sheet(evidence, cells, height=3.3)


def gradients_table(panel: Panel) -> Table:
    seen, rows = observed(panel.runs, probes.BatchGradients), []
    progress = [*dict.fromkeys(seen.progress)]
    moments = dict.fromkeys([*progress[:3], progress[-1]])
    for key, (label, _) in _MEASURED.items():
        for (place, share), kind in product(enumerate(probes.KEPT), _KINDS):
            each = measures.picked(seen, _part(key, kind, place))
            cells = (mean_of(each[seen.progress == moment]) for moment in moments)
            rows.append((f"{label}: {percent(share)}, {kind}", *cells))
    epochs = (f"epoch {panel.setting.recipe.epochs * moment:.1f}" for moment in moments)
    return Table(("part of the batch", *epochs), rows, panel.title)


def _part(key: str, kind: str, place: int) -> measures.Pick:
    return lambda seen: getattr(seen, key)[kind][place]


def _from_first(case: Case, key: str, kind: str, place: int) -> pd.Series:
    since = FIRST / case.panel.setting.recipe.epochs
    return measures.over_training(case.mine, probes.BatchGradients, _part(key, kind, place), since)


def _ahead(case: Case, key: str, place: int) -> Estimate:
    high, random = (_from_first(case, key, kind, place) for kind in _KINDS)
    return over_seeds(high - random)


def norms_table(panel: Panel) -> Table:
    epochs, rows = panel.setting.recipe.epochs, []
    for _, own in observed(panel.runs, probes.GradientNorms).groupby("progress"):
        cells = mean_of(own.correlation), mean_of(own.lower_half)
        rows.append((f"epoch {epochs * own.progress.iloc[0]:.1f}", *cells))
    head = ("", "correlation of ranks", "share of the lower half of the losses in all norms, %")
    return Table(head, rows, panel.title)


def _of_norms(key: str, unit: str) -> Measure:
    seen = partial(measures.over_training, probe=probes.GradientNorms, pick=attrgetter(key))
    return Amount(lambda case: over_seeds(seen(case.mine)), f"{unit} over training")


# Figures 8 and 9: how sure and how right the net is, by percentile of its target confidence
_TENTH, _TWENTIETH = 10, 20
# The parts of the examples, from the least sure on, that claims are about.
_PARTS = {
    "the hardest": slice(10),
    "the tenth": slice(_TENTH, _TENTH + 1),
    "the twentieth": slice(_TWENTIETH, _TWENTIETH + 1),
    "the easier": slice(50, None),
    "all": slice(None),
}
_PAPER = {"confidence": {"sb": "55"}, "accuracy": {"sb": "29", "traditional": "3"}}
_WHAT = {"confidence": "target confidence", "accuracy": "accuracy"}


def draw_percentiles(evidence: Evidence, *, key: str) -> Drawing:
    """Draw figure 8, of the confidence, or 9, of the accuracy."""
    epochs = listed(dict.fromkeys(f"{_epoch(each):.1f}" for each in evidence.panels))
    evidence = replace(evidence, words=evidence.words.format(epochs=epochs))
    middle = 0.5 if key == "accuracy" else 0.0  # a bin's accuracy stands in its middle

    def draw(axes: Axes, panel: Panel) -> None:
        lines: list[drawing.Line] = []
        for arm in panel.arms:
            rows = [*_snapshots(panel[arm.key])[key]]
            places = [place + middle for place in range(len(rows[0]))]
            lines.append((arm.label, arm.style, measures.curve_at(places, rows)))
        drawing.draw_lines(axes, lines, named=True)
        for place in (_TENTH, _TWENTIETH):
            axes.axvline(place, color="#777777", linewidth=0.9, linestyle=":")
        look: dict[str, Any] = {"xlim": (0, 100), "ylim": (-2, 103), "legend": "best"}
        look |= {"xlabel": "percentile of target confidence", "ylabel": f"{_WHAT[key]} (%)"}
        drawing.finish(axes, f"{panel.title}, epoch {_epoch(panel):.1f}", **look)

    return drawing.side_by_side(evidence, draw)


def percentiles_table(panel: Panel, *, key: str) -> Table:
    def cells(arm: Arm, runs: pd.DataFrame) -> dict[str, str]:
        means = {name: mean_of(_of_percentiles(runs, key, part)) for name, part in _PARTS.items()}
        return {
            "mean below the 10th": means["the hardest"],
            "10th percentile": means["the tenth"],
            "20th percentile": means["the twentieth"],
            "in the paper": _PAPER[key].get(arm.key, "—"),
            "mean from the 50th on": means["the easier"],
            "accuracy of all": mean_of(_of_percentiles(runs, "accuracy", _PARTS["all"])),
        }

    title = f"{panel.title}: {_WHAT[key]} in % at epoch {_epoch(panel):.1f}"
    if "sb" in panel and "traditional" in panel:
        seen = (torch.tensor([*_snapshots(panel[arm])[key]]) for arm in ("sb", "traditional"))
        sb, base = (each.mean(0) for each in seen)
        above = (sb > base).nonzero().flatten().tolist()
        at = f"{len(above)} percentiles, the last of them {above[-1]}" if above else "no percentile"
        title += f"; SB lies above Traditional at {at}"
    return panel.table(cells, title)


def _snapshots(runs: pd.DataFrame) -> pd.DataFrame:
    return measures.last(observed(runs, probes.TargetConfidences))


def _epoch(panel: Panel) -> float:
    seen = _snapshots(panel[panel.arms[0].key])
    return panel.setting.recipe.epochs * float(seen.progress.iloc[0])


def _of_percentiles(runs: pd.DataFrame, key: str, part: slice) -> pd.Series:
    return _snapshots(runs)[key].map(lambda values: fmean(values[part]))


def _more(case: Case, key: str, part: slice) -> Answer:
    mine, theirs = (_of_percentiles(runs, key, part) for runs in (case.mine, case.theirs))
    found = paired(mine - theirs)
    if key == "accuracy" and min(mine.min(), theirs.min()) == 100:
        return CERTAIN, in_words(found, "points of accuracy")  # neither can be better
    return found


# Figure 15: how the odds of selection of a few examples change over training
_TITLES = {"traditional": "without selection (Traditional)", "sb": "with selection (SB)"}


def draw_odds(evidence: Evidence) -> Drawing:
    firsts = (replace(p, runs=p.runs[p.runs.seed == p.runs.seed.min()]) for p in evidence.panels)
    one = replace(evidence, panels=tuple(firsts))

    def draw(axes: Axes, panel: Panel, key: str) -> None:
        title, runs, data = f"{panel.title}, {_TITLES[key]}", panel[key], panel.images
        if runs.empty:
            axes.set_title(title, loc="left", fontsize=9)
            return
        beta, lines = round(1 / panel.setting.rate - 1, 6), list[drawing.Line]()
        for place, style in enumerate(STYLES[:5]):
            name = f"{place + 1}: {data.class_names[int(data.train_labels[place])]}"
            odds = measures.follow(
                runs, probes.LossRanks, lambda seen, place=place: 100 * seen.followed[place] ** beta
            )
            lines.append((name, style, odds))
        drawing.draw_lines(axes, lines)
        look: dict[str, Any] = {"xlim": (0, 100), "ylim": (-2, 102), "xlabel": "% of the run"}
        label = f"odds of selection at β = {beta:g} (%)"
        drawing.finish(axes, title, lines, ylabel=label, **look)

    cells = [partial(draw, panel=panel, key=key) for panel in one.panels for key in _TITLES]
    return drawing.sheet(one, [cells])


def odds_table(panel: Panel) -> Table:
    rows = [(_TITLES[arm.key], mean_of(_moved(panel[arm.key]))) for arm in panel.arms]
    title = f"{panel.title}, {percent(panel.setting.rate)} selectivity, all examples"
    return Table(("", "percentiles that a loss's rank moves between evaluations"), rows, title)


def _moved(runs: pd.DataFrame) -> pd.Series:
    return 100 * observed(runs, probes.LossRanks).groupby("seed").moved.mean()


_UNITS = {"confidence": "points of mean target confidence", "accuracy": "points of accuracy"}
MEASURES = {
    "rank of the easiest": Amount(_rank_of_easiest, "% of the examples rank lower, on average"),
    "ahead of random": Measure(_ahead),
    "signs kept": Amount(
        lambda case: over_seeds(_from_first(case, "sign", "high-loss", 0)),
        f"% of equal signs from epoch {FIRST} on",
    ),
    "ranks of losses and gradients": _of_norms("correlation", "correlation of ranks"),
    "share of the lower half": _of_norms("lower_half", "% of the sum of norms"),
    "moves of ranks": Measure(
        lambda case: paired(_moved(case.mine) - _moved(case.theirs)),
        "percentiles between evaluations",
    ),
    **{
        f"{key} of {name}": Measure(partial(_more, key=key, part=part), unit)
        for key, unit in _UNITS.items()
        for name, part in _PARTS.items()
    },
}
