"""Figures 2 to 5, 8, 9 and 15, and two of ours: what happens inside a run, as probes saw it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from statistics import fmean

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from reproductions import drawing, observations
from reproductions.claims import (
    Measure,
    above,
    below,
    by_entry,
    compared,
    each_mean,
    mean_of,
    paired,
)
from reproductions.figures import Found, Judge, Judged, PanelData, Presentation, presented
from reproductions.probes import KEPT, MOST
from selective_backprop_lab.analysis.grouping import RunGroup
from selective_backprop_lab.analysis.run_summary import listed
from selective_backprop_lab.analysis.statistics import Estimate, estimate
from selective_backprop_lab.analysis.tables import Table, percent, with_interval
from selective_backprop_lab.analysis.verdict import Finding, above_zero, in_words, is_above
from selective_backprop_lab.records.schema import Observation, Run
from selective_backprop_lab.report.panels import draw_curve
from selective_backprop_lab.report.styles import Style

_RANKS, _QUANTILES, _BANDS = "LossRanks(", "LossQuantiles(", "LossBands("
_PARTS, _GRADIENTS, _CONFIDENCES = "BatchGradients(", "GradientAgreement(", "TargetConfidences("

# Figure 2: the easiest and the hardest images

SHOWN = 10  # images of each kind
TENTH = 0.1  # the examples of lowest or highest loss that seeds are compared by


def present_easiest(found: Found) -> Presentation:
    """Show the images whose losses rank lowest, and those whose losses rank highest."""
    words = (
        "By the mean rank of each image's loss, in eval mode and without augmentation, over all "
        f"evaluations of traditional training and all seeds. {drawing.caption(found)}"
    )
    lists = [
        [
            partial(
                drawing.draw_images,
                data=drawing.images_of(found, shown),
                indices=order_of(shown)[::step][:SHOWN],
                title=f"{shown.title}, {name}",
            )
            for shown in found.panels
        ]
        for name, step in (("easiest", 1), ("hardest", -1))
    ]
    table = partial(_shown_images, found)
    return presented(found, drawing.sheet(lists, words, height=1.75), table, judge_easiest)


def order_of(shown: PanelData) -> list[int]:
    """Return the images from the easiest to the hardest."""
    return observations.mean_over(shown.only.runs, _RANKS, "ranks").argsort(stable=True).tolist()


def _shown_images(found: Found, shown: PanelData) -> Table:
    data, order = drawing.images_of(found, shown), order_of(shown)
    rows = []
    for name, sign, indices in (("easiest", 1, order[:5]), ("hardest", -1, order[::-1][:5])):
        images = [f"{index} {data.class_names[int(data.train_labels[index])]}" for index in indices]
        rows.append((name, *images, with_interval(shared(shown, sign))))
    title = f"{shown.title}: number and class of the first five"
    head = ("", *map(str, range(1, 6)), f"{percent(TENTH)} shared with the other seeds, %")
    return Table(head, tuple(rows), title)


def shared(shown: PanelData, sign: int) -> Estimate:
    """Return how much of its tenth a seed shares with the others' mean: lowest, or highest at -1.

    Chance gives ten per cent.
    """
    values = [sign * observations.seen_last(run, _RANKS, "ranks") for run in shown.only.runs]
    return estimate(
        [
            observations.overlap(mine, torch.stack(others).double().mean(0), TENTH)
            for place, mine in enumerate(values)
            if (others := values[:place] + values[place + 1 :])
        ]
    )


def judge_easiest(shown: PanelData) -> Iterator[Judged]:
    """Judge whether the images that are shown have low losses over the whole course."""
    easiest = order_of(shown)[:SHOWN]
    ranks = [observations.seen_last(run, _RANKS, "ranks")[easiest] for run in shown.only.runs]
    found = estimate([100 * float(each.double().mean()) / (MOST - 1) for each in ranks])
    claim = (
        f"{shown.title}: over the course of training the losses of the {SHOWN} easiest images are "
        f"on average among the lowest {percent(TENTH)} (our limit)"
    )
    yield "easy", below(claim, found, 100 * TENTH, "% of the examples rank lower, on average")


# Figures 3 and 4: how losses are distributed, and what that makes of their odds

_DOT, _DASH, _SOLID = (
    Style("#56b4e9", "dot", 2.4),
    Style("#0072b2", "dash", 2.4),
    Style("#d55e00", "solid", 2.9),
)
_BETAS = {1: _DOT, 2: _SOLID, 3: _DASH}
_MOMENTS = {
    "a quarter through": (0.25, _DOT),
    "halfway": (0.5, _DASH),
    "at the end": (1.0, _SOLID),
}
_FLOOR = 1e-4  # lower losses are drawn here
_LOSSES = "Losses in eval mode, without augmentation; mean quantiles over seeds."


def present_losses(found: Found) -> Presentation:
    """Draw the share of the examples whose loss is at most so high, at several moments."""

    def draw(panel: Axes, shown: PanelData) -> None:
        for name, (moment, style) in _MOMENTS.items():
            _draw_odds(panel, quantiles_at(shown.only, moment), 1, style, name)
        _finish_odds(panel, shown.title, "share of the examples (%)")

    def table(shown: PanelData) -> Table:
        seen = {name: quantiles_at(shown.only, moment) for name, (moment, _) in _MOMENTS.items()}
        shares = (10, 25, 50, 75, 90)
        rows = [(name, *(_at_share(each, s) for s in shares)) for name, each in seen.items()]
        return Table(("loss", *(f"{share} % are below" for share in shares)), rows, shown.title)

    return drawing.present_panels(found, draw, _LOSSES, table)


def present_odds_by_loss(found: Found) -> Presentation:
    """Draw the odds of selection of a loss, for several selectivities, halfway through."""

    def draw(panel: Axes, shown: PanelData) -> None:
        for beta, style in _BETAS.items():
            name = f"β = {beta}: {percent(1 / (beta + 1))} selected"
            _draw_odds(panel, quantiles_at(shown.only, 0.5), beta, style, name)
        _finish_odds(panel, shown.title, "probability of selection (%)")

    def table(shown: PanelData) -> Table:
        losses, rows = quantiles_at(shown.only, 0.5), []
        for share in (10, 50, 90):
            odds = [percent((share / 100) ** beta) for beta in _BETAS]
            rows.append((f"{share} % of the losses are lower", _at_share(losses, share), *odds))
        return Table(("example", "loss", *(f"β = {beta}" for beta in _BETAS)), rows, shown.title)

    return drawing.present_panels(found, draw, f"Halfway through the run. {_LOSSES}", table)


def quantiles_at(arm: RunGroup, progress: float) -> list[float]:
    """Return the mean quantiles over an arm's seeds, seen nearest to a moment of the run."""
    nearest = (
        min(observations.looks(run, _QUANTILES), key=lambda each: abs(each.progress - progress))
        for run in arm.runs
    )
    columns = zip(*(each.seen["quantiles"] for each in nearest), strict=True)
    return [fmean(values) for values in columns]


def _at_share(quantiles: Sequence[float], share: int) -> str:
    return f"{quantiles[round(share * (len(quantiles) - 1) / 100)]:.4f}"


def _draw_odds(panel: Axes, losses: Sequence[float], beta: int, style: Style, name: str) -> None:
    """Draw the odds of each loss: the share of lower ones, to the power of beta."""
    odds = [100 * (place / (len(losses) - 1)) ** beta for place in range(len(losses))]
    curve = drawing.curve_at([max(loss, _FLOOR) for loss in losses], [odds])
    draw_curve(panel, curve, style, width=0.75, label=name)


def _finish_odds(panel: Axes, title: str, label: str) -> None:
    panel.set_xscale("log")
    # Losses span about a decade: powers of ten alone would be one label, or none.
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set(ylim=(0, 103), xlabel="cross-entropy loss", ylabel=label)
    drawing.framed(panel, title, legend="upper left")


# Figure 5: how near the gradient of a part of a batch comes to that of the batch

FIRST = 1  # epochs: what is claimed is claimed from here on
_MEASURES = {
    "cosine": ("cosine", 1.0, "of mean cosine"),
    "sign": ("equal signs (%)", 100.0, "points of equal signs"),
}
_KINDS = {"high-loss": "solid", "random": "dash"}
_SHADES = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")  # Okabe and Ito's, one for each share
_EVAL = "The net is in eval mode, images are not augmented."


def present_gradients(found: Found) -> Presentation:
    """Draw cosine and equal signs of each kept share, over epochs."""
    words = (
        "While Traditional trains: the gradient of a batch of 128 against that of a part of it, "
        "the highest losses (solid) or as many at random (dashed); means of the same 4 batches of "
        f"the training set, over seeds. {_EVAL} {drawing.caption(found)}"
    )

    def draw(panel: Axes, shown: PanelData, key: str) -> None:
        epochs = shown.panel.setting.recipe.epochs
        lines: list[drawing.Line] = [
            (
                f"{percent(share)} {'highest' if kind == 'high-loss' else 'random'}",
                Style(_SHADES[place], dash, 2.0),
                observations.follow(shown.only, _PARTS, _part(key, kind, place), epochs),
            )
            for place, share in enumerate(KEPT)
            for kind, dash in _KINDS.items()
        ]
        label, most, _ = _MEASURES[key]
        _draw_over_training(panel, shown.title, label, lines, _room(lines, most), epochs)

    return presented(found, _measured(found, draw, words), _first_looks, judge_gradients)


def _first_looks(shown: PanelData) -> Table:
    """Return the numbers of the first three looks and of the last one."""
    looks = [observations.looks(run, _PARTS) for run in shown.only.runs]
    moments = dict.fromkeys([*range(len(looks[0]))[:3], len(looks[0]) - 1])
    rows = []
    for key, (label, _, _) in _MEASURES.items():
        for (place, share), kind in product(enumerate(KEPT), _KINDS):
            pick = _part(key, kind, place)
            seen = [estimate([pick(each[moment].seen) for each in looks]) for moment in moments]
            rows.append((f"{label}: {percent(share)}, {kind}", *map(with_interval, seen)))
    epochs = [shown.panel.setting.recipe.epochs * looks[0][moment].progress for moment in moments]
    head = ("part of the batch", *(f"epoch {epoch:.1f}" for epoch in epochs))
    return Table(head, rows, shown.title)


def judge_gradients(shown: PanelData) -> Iterator[Judged]:
    """Judge figure 5 by the mean over all looks after the first epoch."""
    since = FIRST / shown.panel.setting.recipe.epochs

    def mean(key: str, kind: str, place: int) -> Callable[[Run], float]:
        return observations.over_training(_PARTS, _part(key, kind, place), since)

    for place, share in enumerate(KEPT):
        for key, (_, _, unit) in _MEASURES.items():
            high, random = mean(key, "high-loss", place), mean(key, "random", place)
            ahead = estimate([high(run) - random(run) for run in shown.only.runs])
            claim = (
                f"{shown.title}: from epoch {FIRST} on, the {percent(share)} with the highest "
                f"losses are nearer to the batch than as many at random, by {key}"
            )
            yield "ahead", above_zero(claim, ahead, unit)
    kept = mean_of(shown.only, mean("sign", "high-loss", 0))
    claim = (
        f"{shown.title}: the {percent(KEPT[0])} with the highest losses keep over 80 % of the signs"
    )
    yield "signs", above(claim, kept, 80.0, f"% of equal signs from epoch {FIRST} on")


def _part(key: str, kind: str, place: int) -> observations.Pick:
    return lambda seen: seen[key][kind][place]


# Of ours, beside it: batches as SB draws them, against all examples

_DRAWN = {
    "high-loss": Style("#d55e00", "solid", 2.2),
    "random": Style("#0072b2", "dash", 1.8),
}


def present_drawn_batches(found: Found) -> Presentation:
    """Draw cosine and agreement of signs over training."""
    words = (
        "While SB trains: means of 8 batches of 128, of at most 2,000 that stand for all; "
        "high-loss batches are drawn with SB's odds at 33 %, random ones evenly. "
        f"{_EVAL} Bands: 95 % t-interval over seeds. {drawing.caption(found)}"
    )

    def draw(panel: Axes, shown: PanelData, key: str) -> None:
        label, most, _ = _MEASURES[key]
        lines: list[drawing.Line] = [
            (kind, style, observations.follow(shown.only, _GRADIENTS, _drawn(key, kind)))
            for kind, style in _DRAWN.items()
        ]
        label = f"{label}, with the gradient of all"
        _draw_over_training(panel, shown.title, label, lines, _room(lines, most))

    def table(shown: PanelData) -> Table:
        def mean(key: str, kind: str) -> str:
            over = observations.over_training(_GRADIENTS, _drawn(key, kind))
            return with_interval(mean_of(shown.only, over))

        rows = [(f"{kind} batches", *(mean(key, kind) for key in _MEASURES)) for kind in _DRAWN]
        head = ("", *(label for label, *_ in _MEASURES.values()))
        return Table(head, rows, f"{shown.title}, over training")

    return presented(found, _measured(found, draw, words), table)


def _measured(
    found: Found, draw: Callable[[Axes, PanelData, str], object], words: str
) -> drawing.Drawing:
    """Return a panel of each measure beside each other, and of each setting."""
    cells: list[list[drawing.Cell]] = [
        [lambda panel, shown=shown, key=key: draw(panel, shown, key) for key in _MEASURES]
        for shown in found.panels
    ]
    return drawing.sheet(cells, words, height=3.3)


def _room(lines: Sequence[drawing.Line], most: float) -> tuple[float, float]:
    """Return limits that leave room about lines, up to what can be reached."""
    means = [value for *_, line in lines for value in line.mean]
    room = 0.1 * (max(means) - min(means)) or 0.1
    return min(means) - room, min(max(means) + room, most)


def _draw_over_training(
    panel: Axes,
    title: str,
    label: str,
    lines: Sequence[drawing.Line],
    limits: tuple[float, float],
    epochs: int | None = None,
) -> None:
    """Draw numbers over training, in per cent or in epochs, each named where it ends."""
    panel.set(xlabel="epoch" if epochs else "% of the run", ylabel=label)
    panel.set(xlim=(0, epochs or 100), ylim=limits)
    drawing.draw_named(panel, title, lines)


def _drawn(key: str, kind: str) -> observations.Pick:
    return lambda seen: seen[key][kind]


# Figures 8 and 9: how sure and how right the net is, by percentile of its target confidence

HARDER, EASIER = slice(None, 50), slice(50, None)  # percentiles, from the least confident on
TWENTIETH = 20
COST = 5.0  # points of confidence: "almost no cost" is at most this, by our limit
SACRIFICED = 1.0  # points of accuracy: more is a sacrifice, by our limit
_PAPER = {"confidence": {"sb": "55"}, "accuracy": {"sb": "29", "traditional": "3"}}


def present_percentiles(key: str, what: str, judge: Judge, found: Found) -> Presentation:
    """Draw figure 8, of the confidence, or 9, of the accuracy."""
    epochs = listed(dict.fromkeys(f"{_epoch(each):.1f}" for each in found.panels))
    words = (
        "All test examples in the order of their target confidence, the softmax probability of "
        "the true label. A snapshot at the evaluation nearest to epoch 10, or at the end of a "
        f"shorter run: epoch {epochs}. Bands: 95 % t-interval over seeds; dotted: the "
        "20th percentile."
    )

    def draw(panel: Axes, shown: PanelData) -> None:
        for entry, arm in shown.pairs:
            rows = [_snapshot(run).seen[key] for run in arm.runs]
            # A bin's accuracy stands in its middle.
            middle = 0.5 if key == "accuracy" else 0.0
            curve = drawing.curve_at([place + middle for place in range(len(rows[0]))], rows)
            draw_curve(panel, curve, entry.style, width=0.75, label=entry.label, spread=True)
        panel.axvline(TWENTIETH, color="#777777", linewidth=0.9, linestyle=":")
        panel.set(xlabel="percentile of target confidence", ylabel=f"{what} (%)")
        panel.set(xlim=(0, 100), ylim=(-2, 103))
        drawing.framed(panel, f"{shown.title}, epoch {_epoch(shown):.1f}", legend="best")

    def table(shown: PanelData) -> Table:
        columns = {
            "20th percentile": each_mean(_of_percentiles(key, TWENTIETH)),
            "in the paper": lambda entry, arm: _PAPER[key].get(entry.key, "—"),
            "mean below the 50th": each_mean(_of_percentiles(key, HARDER)),
            "mean from the 50th on": each_mean(_of_percentiles(key, EASIER)),
            "accuracy of all": each_mean(_right),
        }
        return by_entry(shown, columns, f"{shown.title}: {what} in % at epoch {_epoch(shown):.1f}")

    return drawing.present_panels(found, draw, words, table, judge)


def judge_confidence(shown: PanelData) -> Iterator[Judged]:
    """Judge figure 8: surer of the harder examples, at almost no cost of the easier ones."""
    unit = "points of mean target confidence"
    harder, easier = (_of_percentiles("confidence", part) for part in (HARDER, EASIER))
    claim = "SB has higher confidence than Traditional below the 50th percentile"
    yield from _more(shown, "caption", claim, harder, unit)
    claim = f"from the 50th percentile on it costs SB at most {COST:g} points (our limit)"
    yield from _more(shown, "caption", claim, easier, unit, -COST)


def judge_accuracy(shown: PanelData) -> Iterator[Judged]:
    """Judge figure 9: more often right of the harder examples, and no less of the others."""
    unit, limit = "points of accuracy", f"at most {SACRIFICED:g} point (our limit)"
    harder, easier, twentieth = (
        _of_percentiles("accuracy", part) for part in (HARDER, EASIER, TWENTIETH)
    )
    claim = "SB is more accurate than Traditional below the 50th percentile"
    yield from _more(shown, "caption", claim, harder, unit)
    claim = f"from the 50th percentile on SB is less accurate by {limit}"
    yield from _more(shown, "caption", claim, easier, unit, -SACRIFICED)
    claim = "at the 20th percentile SB classifies more correctly than Traditional"
    yield from _more(shown, "twentieth", claim, twentieth, f"{unit}, +26 in the paper")
    claim = f"of the whole test set SB is less accurate by {limit}"
    yield from _more(shown, "all", claim, _right, unit, -SACRIFICED)


def _more(
    shown: PanelData, quote: str, claim: str, value: Measure, unit: str, limit: float = 0.0
) -> Iterator[Judged]:
    """Judge the claim that SB's value exceeds Traditional's by more than a limit."""

    def judge(claim: str, ours: RunGroup, base: RunGroup) -> Finding:
        more = paired(ours, base, lambda one, two: value(one) - value(two))
        return Finding(claim, is_above(more, limit), in_words(more, unit))

    yield from compared(shown, quote, claim, ("sb", "traditional"), judge)


def _snapshot(run: Run) -> Observation:
    return observations.looks(run, _CONFIDENCES)[-1]


def _epoch(shown: PanelData) -> float:
    """Return when the confidences of a panel's runs were seen."""
    (_, arm), *_ = shown.pairs
    return shown.panel.setting.recipe.epochs * _snapshot(arm.runs[0]).progress


def _of_percentiles(key: str, part: slice | int) -> Callable[[Run], float]:
    """Return what takes the mean of a snapshot over some percentiles, or its value at one."""

    def value(run: Run) -> float:
        there = _snapshot(run).seen[key]
        return there[part] if isinstance(part, int) else fmean(there[part])

    return value


def _right(run: Run) -> float:
    """Return the share of the test examples that a snapshot has right, in per cent."""
    return fmean(_snapshot(run).seen["accuracy"])


# Of ours, beside them: bands of equally many test examples, over the whole run

# From the lowest losses to the highest: Okabe and Ito's, in the order of a rainbow.
_RAINBOW = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00")
_SEEN = {"confidence": "target confidence", "accuracy": "accuracy"}


def present_bands(found: Found) -> Presentation:
    """Draw target confidence and accuracy of bands of the test set, over training."""
    words = (
        "At most 4,000 test examples, in five bands of equally many by their loss at that moment. "
        f"Means over seeds; their intervals stand in the table. {drawing.caption(found)}"
    )

    def draw(panel: Axes, shown: PanelData, key: str) -> None:
        lines: list[drawing.Line] = []
        for arm_key, dash in (("sb", "solid"), ("traditional", "dash")):
            arm = shown.find(arm_key)
            if arm is None:
                continue
            for band, name in enumerate(_band_names(arm)):
                style = Style(_RAINBOW[band % len(_RAINBOW)], dash, 2.0)
                label = name if dash == "solid" else ""
                lines.append((label, style, observations.follow(arm, _BANDS, _band(key, band))))
        top, title = max(max(line.mean) for *_, line in lines), "SB solid, Traditional dashed"
        label = f"{_SEEN[key]} (%)" if shown is found.panels[0] else ""
        limits = -0.02 * top, min(102.0, 1.1 * top)
        _draw_over_training(panel, f"{shown.title}: {title}", label, lines, limits)

    def table(shown: PanelData) -> Table:
        names, rows = _band_names(shown.pairs[0][1]), []
        for key, what in _SEEN.items():
            for entry, arm in shown.pairs:
                last = [observations.looks(run, _BANDS)[-1].seen[key] for run in arm.runs]
                ends = [estimate(column) for column in zip(*last, strict=True)]
                rows.append((f"{entry.label}, {what}", *map(with_interval, ends)))
        head = ("strategy", *(f"loss {name}" for name in names))
        return Table(head, tuple(rows), f"{shown.title}: at the end, %")

    cells = [[partial(draw, shown=shown, key=key) for shown in found.panels] for key in _SEEN]
    return presented(found, drawing.sheet(cells, words, height=3.2), table)


def _band(key: str, band: int) -> observations.Pick:
    return lambda seen: seen[key][band]


def _band_names(arm: RunGroup) -> list[str]:
    count = len(observations.looks(arm.runs[0], _BANDS)[0].seen["accuracy"])
    edges = [round(100 * place / count) for place in range(count + 1)]
    names = [f"{low}–{high} %" for low, high in pairwise(edges)]
    return [f"lowest {edges[1]} %", *names[1:-1], f"highest {edges[1]} %"]


# Figure 15: how the odds of selection of a few examples change over training

_FIVE = (
    Style("#d55e00", "solid", 2.0),
    Style("#0072b2", "dash", 2.0),
    Style("#009e73", "dashdot", 2.0),
    Style("#cc79a7", "longdash", 2.0),
    Style("#e69f00", "dot", 2.2),
)
_TITLES = {"traditional": "without selection (Traditional)", "sb": "with selection (SB)"}


def present_odds(found: Found) -> Presentation:
    """Draw the odds of five examples, where nothing is selected and where SB selects."""
    words = (
        "The first five training examples, seed 0: an example's odds are the share of lower losses "
        "among the training examples, to the power of β; in eval mode, without augmentation. "
        f"{drawing.caption(found)}"
    )

    def draw(panel: Axes, shown: PanelData, key: str) -> None:
        title = f"{shown.title}, {_TITLES[key]}"
        arm, data = shown.find(key), drawing.images_of(found, shown)
        if arm is None:
            return drawing.entitled(panel, title)
        one, beta = replace(arm, runs=arm.runs[:1]), round(1 / shown.panel.setting.rate - 1, 6)
        lines: list[drawing.Line] = []
        for place, style in enumerate(_FIVE):
            name = f"{place + 1}: {data.class_names[int(data.train_labels[place])]}"
            lines.append((name, style, observations.follow(one, _RANKS, _odds(place, beta))))
        label = f"odds of selection at β = {beta:g} (%)"
        _draw_over_training(panel, title, label, lines, (-2, 102))

    def table(shown: PanelData) -> Table:
        moved = "places in a hundred that a loss's rank moves from look to look"
        rows = [
            (_TITLES[entry.key], with_interval(mean_of(arm, _moved))) for entry, arm in shown.pairs
        ]
        selectivity = percent(shown.panel.setting.rate)
        title = f"{shown.title}, {selectivity} selectivity, all examples"
        return Table(("", moved), rows, title)

    cells = [partial(draw, shown=shown, key=key) for shown in found.panels for key in _TITLES]
    return presented(found, drawing.sheet([cells], words), table, judge_odds)


def judge_odds(shown: PanelData) -> Iterator[Judged]:
    """Judge figure 15: ranks move more where SB selects."""
    claim = "odds change more with selection than without"
    unit = "places in a hundred, from look to look"
    yield from _more(shown, "fluctuates", claim, _moved, unit)


def _odds(place: int, beta: float) -> observations.Pick:
    return lambda seen: 100 * seen["followed"][place] ** beta


def _moved(run: Run) -> float:
    """Return by how many places in a hundred ranks move between looks, on average."""
    moves = [each.seen["moved"] for each in observations.looks(run, _RANKS) if "moved" in each.seen]
    return 100 * sum(moves) / max(1, len(moves))
