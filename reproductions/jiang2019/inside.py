"""Figures 2 to 5, 8, 9 and 15: what happens inside a run, as probes saw it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from reproductions import drawing, observations
from reproductions.claims import mean_of, paired
from reproductions.figures import Found, PanelData, Presentation, presented
from selective_backprop.lab.analysis.grouping import RunGroup
from selective_backprop.lab.analysis.statistics import Estimate, estimate
from selective_backprop.lab.analysis.tables import Table, percent, with_interval
from selective_backprop.lab.analysis.verdict import Finding, above_zero, below_zero
from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.report.panels import draw_curve
from selective_backprop.lab.report.styles import Style

_RANKS, _QUANTILES, _GRADIENTS, _BANDS = (
    "LossRanks(",
    "LossQuantiles(",
    "GradientAgreement(",
    "LossBands(",
)
Seen = Mapping[str, Any]

# Figure 2: the easiest and the hardest images

HARDEST = 0.1


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
                indices=order_of(shown)[::step][:10],
                title=f"{shown.title}, {name}",
            )
            for shown in found.panels
        ]
        for name, step in (("easiest", 1), ("hardest", -1))
    ]
    table = partial(_first_five, found)
    return presented(found, drawing.sheet(lists, words, height=1.75), table, judge_hardest)


def order_of(shown: PanelData) -> list[int]:
    """Return the images from the easiest to the hardest."""
    return observations.mean_over(shown.only.runs, _RANKS, "ranks").argsort(stable=True).tolist()


def _first_five(found: Found, shown: PanelData) -> Table:
    data, order = drawing.images_of(found, shown), order_of(shown)
    rows = [
        (name, *(f"{index} {data.class_names[int(data.train_labels[index])]}" for index in indices))
        for name, indices in (("easiest", order[:5]), ("hardest", order[::-1][:5]))
    ]
    title = f"{shown.title}: number and class of the first five"
    return Table(("", *map(str, range(1, 6))), tuple(rows), title)


def judge_hardest(shown: PanelData) -> Iterator[Finding]:
    """Judge what the figure takes for granted: an image is hard whatever the seed."""
    # Negated, the hardest are the lowest.
    hard = [-observations.seen_last(run, _RANKS, "ranks").double() for run in shown.only.runs]
    above = [
        observations.overlap(mine, torch.stack(others).mean(0), HARDEST) - 100 * HARDEST
        for place, mine in enumerate(hard)
        if (others := hard[:place] + hard[place + 1 :])
    ]
    claim = f"{shown.title}: the hardest tenth is that of the other seeds too (implied)"
    yield above_zero(claim, estimate(above), "% in common beyond chance")


# Figures 3 and 4: how losses are distributed, and what that makes of their odds

BETAS = (1, 2, 3)
_MOMENTS = {"a quarter through": 0.25, "halfway": 0.5, "at the end": 1.0}
_DOT, _DASH, _SOLID = (
    Style("#56b4e9", "dot", 2.4),
    Style("#0072b2", "dash", 2.4),
    Style("#d55e00", "solid", 2.9),
)
_FLOOR = 1e-4  # lower losses are drawn here
_LOSSES = "Losses in eval mode, without augmentation; mean quantiles over seeds."


def present_losses(found: Found) -> Presentation:
    """Draw the share of the examples whose loss is at most so high, at several moments."""

    def draw(panel: Axes, shown: PanelData) -> None:
        for (name, moment), style in zip(_MOMENTS.items(), (_DOT, _DASH, _SOLID), strict=True):
            _draw_odds(panel, quantiles_at(shown.only, moment), 1, style, name)
        _finish_odds(panel, shown.title, "share of the examples (%)")

    def table(shown: PanelData) -> Table:
        shares = (10, 25, 50, 75, 90)
        rows = []
        for name, moment in _MOMENTS.items():
            losses = quantiles_at(shown.only, moment)
            rows.append((name, *(_at_share(losses, share) for share in shares)))
        return Table(("loss", *(f"{share} % are below" for share in shares)), rows, shown.title)

    return drawing.present_panels(found, draw, _LOSSES, table)


def present_odds_by_loss(found: Found) -> Presentation:
    """Draw the odds of selection of a loss, for several selectivities, halfway through."""

    def draw(panel: Axes, shown: PanelData) -> None:
        losses = quantiles_at(shown.only, 0.5)
        for beta, style in zip(BETAS, (_DOT, _SOLID, _DASH), strict=True):
            name = f"β = {beta}: {percent(1 / (beta + 1))} selected"
            _draw_odds(panel, losses, beta, style, name)
        _finish_odds(panel, shown.title, "probability of selection (%)")

    def table(shown: PanelData) -> Table:
        losses = quantiles_at(shown.only, 0.5)
        rows = []
        for share in (10, 50, 90):
            odds = [percent((share / 100) ** beta) for beta in BETAS]
            rows.append((f"{share} % of the losses are lower", _at_share(losses, share), *odds))
        return Table(("example", "loss", *(f"β = {beta}" for beta in BETAS)), rows, shown.title)

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
    panel.set_ylim(0, 103)
    panel.set_xlabel("cross-entropy loss")
    panel.set_ylabel(label)
    drawing.ruled(panel)
    panel.legend(frameon=False, fontsize=8, loc="upper left", handlelength=2.4)
    drawing.entitled(panel, title)


# Figure 5: which batches' gradients point where that of all examples does

_MEASURES = {
    "cosine": ("cosine with the gradient of all", 1.0, "of mean cosine"),
    "sign": ("signs as in the gradient of all (%)", 100.0, "points of equal signs"),
}
_KINDS = {
    "high-loss": Style("#d55e00", "solid", 2.2),
    "random": Style("#0072b2", "dash", 1.8),
}


def present_gradients(found: Found) -> Presentation:
    """Draw cosine and agreement of signs over training."""
    words = (
        "While SB trains: means of 8 batches of 128, of at most 2,000 that stand for all; "
        "high-loss batches are drawn with SB's odds at 33 %, random ones evenly. The net is in "
        "eval mode, images are not augmented. Bands: 95 % t-interval over seeds. "
        f"{drawing.caption(found)}"
    )

    def draw(panel: Axes, shown: PanelData, key: str) -> None:
        label, most, _ = _MEASURES[key]
        lines: list[drawing.Line] = [
            (kind, style, observations.follow(shown.only, _GRADIENTS, _kind(key, kind)))
            for kind, style in _KINDS.items()
        ]
        means = [value for *_, line in lines for value in line.mean]
        room = 0.25 * (max(means) - min(means)) or 0.1
        _draw_over_training(panel, lines, (min(means) - room, min(max(means) + room, most)))
        panel.set_ylabel(label)
        drawing.entitled(panel, shown.title)

    def mean(key: str, kind: str) -> Callable[[Run], float]:
        return observations.over_training(_GRADIENTS, _kind(key, kind))

    def table(shown: PanelData) -> Table:
        rows = []
        for kind in _KINDS:
            means = [mean_of(shown.only, mean(key, kind)) for key in _MEASURES]
            rows.append((f"{kind} batches", *map(with_interval, means)))
        head = ("", *(label for label, *_ in _MEASURES.values()))
        return Table(head, tuple(rows), f"{shown.title}, over training")

    def judge(shown: PanelData) -> Iterator[Finding]:
        for key, (_, _, unit) in _MEASURES.items():
            high, random = mean(key, "high-loss"), mean(key, "random")
            ahead = estimate([high(run) - random(run) for run in shown.only.runs])
            claim = (
                f"{shown.title}: high-loss batches point nearer to the gradient of all than "
                f"random ones, by {key} (implied)"
            )
            yield above_zero(claim, ahead, unit)

    cells = [partial(draw, shown=shown, key=key) for shown in found.panels for key in _MEASURES]
    return presented(found, drawing.sheet([cells], words), table, judge)


def _draw_over_training(
    panel: Axes, lines: Sequence[drawing.Line], limits: tuple[float, float]
) -> None:
    """Draw numbers over training, each named where it ends."""
    drawing.draw_lines(panel, lines)
    panel.set_ylim(*limits)
    panel.set_xlim(0, 100)
    panel.set_xlabel("% of the run")
    drawing.ruled(panel)
    drawing.name_lines(panel, lines)


def _kind(key: str, kind: str) -> observations.Pick:
    return lambda seen: seen[key][kind]


# Figures 8 and 9: how sure and how right the net is of easy and of hard examples

# From the lowest losses to the highest: Okabe and Ito's, in the order of a rainbow.
_RAINBOW = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00")


def present_confidence(found: Found) -> Presentation:
    """Draw figure 8."""
    return _present_bands(found, "confidence", "target confidence", judge_confidence)


def present_accuracy(found: Found) -> Presentation:
    """Draw figure 9."""
    return _present_bands(found, "accuracy", "accuracy", judge_accuracy)


def _present_bands(
    found: Found, key: str, what: str, judge: Callable[[PanelData], Iterator[Finding]]
) -> Presentation:
    words = (
        "At most 4,000 test examples, in five bands of equally many by their loss at that moment. "
        "Means over seeds; their intervals stand in the table."
    )

    def draw(panel: Axes, shown: PanelData) -> None:
        lines: list[drawing.Line] = []
        for arm_key, dash in (("sb", "solid"), ("traditional", "dash")):
            arm = shown.find(arm_key)
            if arm is None:
                continue
            for band, name in enumerate(_band_names(arm)):
                style = Style(_RAINBOW[band % len(_RAINBOW)], dash, 2.0)
                label = name if dash == "solid" else ""
                lines.append((label, style, observations.follow(arm, _BANDS, _band(key, band))))
        top = max(value for *_, line in lines for value in line.mean)
        _draw_over_training(panel, lines, (-0.02 * top, min(102.0, 1.1 * top)))
        drawing.entitled(panel, f"{shown.title}: SB solid, Traditional dashed")
        if shown is found.panels[0]:
            panel.set_ylabel(f"{what} (%)")

    def table(shown: PanelData) -> Table:
        names, rows = _band_names(shown.pairs[0][1]), []
        for entry, arm in shown.pairs:
            last = [observations.looks(run, _BANDS)[-1].seen[key] for run in arm.runs]
            ends = [estimate(column) for column in zip(*last, strict=True)]
            rows.append((entry.label, *map(with_interval, ends)))
        head = ("strategy", *(f"loss {name}" for name in names))
        return Table(head, tuple(rows), f"{shown.title}: {what} at the end, %")

    return drawing.present_panels(found, draw, words, table, judge, height=3.2)


def judge_confidence(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 8: confidence moves from the easy examples to the hard ones."""
    unit = "points of target confidence over training"
    easiest, hardest = (
        observations.over_training(_BANDS, _band("confidence", band)) for band in (0, -1)
    )
    claim = "SB is less sure of the easiest fifth than Traditional"
    yield from _against_traditional(shown, claim, easiest, unit, below_zero)
    claim = "SB is surer of the hardest fifth than Traditional"
    yield from _against_traditional(shown, claim, hardest, unit)


def judge_accuracy(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 9: the harder examples are learned sooner."""
    harder = observations.over_training(_BANDS, lambda seen: sum(seen["accuracy"][-2:]) / 2)
    claim = "SB is right more often on the harder two fifths"
    yield from _against_traditional(shown, claim, harder, "points of accuracy over training")


def _against_traditional(
    shown: PanelData,
    claim: str,
    value: Callable[[Run], float],
    unit: str,
    judge: Callable[[str, Estimate, str], Finding] = above_zero,
) -> Iterator[Finding]:
    ours, base = shown.find("sb"), shown.find("traditional")
    if ours is not None and base is not None:
        more = paired(ours, base, lambda one, two: value(one) - value(two))
        yield judge(f"{shown.title}: {claim} (implied)", more, unit)


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
        drawing.entitled(panel, f"{shown.title}, {_TITLES[key]}")
        arm, data = shown.find(key), drawing.images_of(found, shown)
        if arm is None:
            return
        one, beta = replace(arm, runs=arm.runs[:1]), round(1 / shown.panel.setting.rate - 1, 6)
        lines: list[drawing.Line] = []
        for place, style in enumerate(_FIVE):
            name = f"{place + 1}: {data.class_names[int(data.train_labels[place])]}"
            lines.append((name, style, observations.follow(one, _RANKS, _odds(place, beta))))
        _draw_over_training(panel, lines, (-2, 102))
        panel.set_ylabel(f"odds of selection at β = {beta:g} (%)")

    def table(shown: PanelData) -> Table:
        rows = [
            (_TITLES[entry.key], with_interval(mean_of(arm, _moved))) for entry, arm in shown.pairs
        ]
        head = ("", "places in a hundred that a loss's rank moves from look to look")
        selectivity = percent(shown.panel.setting.rate)
        return Table(head, tuple(rows), f"{shown.title}, {selectivity} selectivity, all examples")

    cells = [partial(draw, shown=shown, key=key) for shown in found.panels for key in _TITLES]
    return presented(found, drawing.sheet([cells], words), table, judge_odds)


def judge_odds(shown: PanelData) -> Iterator[Finding]:
    """Judge figure 15: ranks move more where SB selects."""
    claim, unit = (
        "odds change more with selection than without",
        "places in a hundred, from look to look",
    )
    yield from _against_traditional(shown, claim, _moved, unit)


def _odds(place: int, beta: float) -> observations.Pick:
    return lambda seen: 100 * seen["followed"][place] ** beta


def _moved(run: Run) -> float:
    """Return by how many places in a hundred ranks move between looks, on average."""
    moves = [each.seen["moved"] for each in observations.looks(run, _RANKS) if "moved" in each.seen]
    return 100 * sum(moves) / max(1, len(moves))
