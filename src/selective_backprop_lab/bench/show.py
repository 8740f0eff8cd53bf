"""Show the findings of `bench`: tables and sentences for a terminal, and a figure.

The figure's panels follow Jiang et al. 2019, arXiv:1910.00762, figures 10 and 18.
"""

import math
import textwrap
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selective_backprop_lab.analysis.tables import Table
from selective_backprop_lab.bench.harness import Findings, Row
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.report.panels import FULL, INK, PHASE_COLOURS, PHASES, SETTINGS, entitle


def draw_bench(findings: Findings, path: Path) -> None:
    """Draw stacked bars per strategy, relative to traditional training, and the parts of a step."""
    height = 1.9 + 0.34 * len(findings["strategies"])
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(FULL, height), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2.1, 1))
        _draw_strategies(left, findings)
        _draw_step(right, findings)
        caption = "\n".join(textwrap.wrap(next(describe(findings)), 130))
        figure.supxlabel(caption, fontsize=7.5, x=0.01, ha="left")
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:], dpi=160)


def _draw_strategies(axes: Axes, findings: Findings) -> None:
    strategies = findings["strategies"]
    names, shares = list(strategies), [_fitted(found) for found in strategies.values()]
    left = [0.0] * len(names)
    phases = [phase for phase in PHASES if any(share.get(phase) for share in shares)]
    for phase in phases:
        widths = [share.get(phase, 0.0) for share in shares]
        axes.barh(names, widths, left=left, height=0.7, label=phase, color=PHASE_COLOURS[phase])
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for row, found in enumerate(strategies.values()):
        limit, relative = found["limit"]["median"], found["relative"]["median"]
        axes.plot([limit] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=1.2)
        end = max(left[row], limit) + 0.01
        axes.text(end, row, f" {relative:.2f}", va="center", fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlabel("seconds of an epoch, relative to traditional; line: the least possible")
    entitle(axes, "Where an epoch's time goes", phases, room=3.6)


def _fitted(found: Row) -> dict[str, float]:
    scale = found["relative"]["median"] / sum(found["phases"].values())
    return {name: share * scale for name, share in found["phases"].items()}


def _draw_step(axes: Axes, findings: Findings) -> None:
    step = findings["step"]
    colours = [PHASE_COLOURS["score"], *(PHASE_COLOURS[name] for name in list(step)[1:])]
    axes.bar(range(len(step)), list(step.values()), width=0.7, color=colours)
    axes.set_xticks(range(len(step)), [name.replace(" ", "\n") for name in step], fontsize=7.5)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("milliseconds per 1,000 examples")
    axes.set_title(
        f"Backward: {findings['backward']['median']:.2f} × forward", loc="left", fontsize=9
    )


def describe(findings: Findings) -> Iterator[str]:
    """Say what was measured, and how the time of a step divides into phases."""
    config, rounds = findings["config"], findings["rounds"]
    image = "x".join(map(str, config["image"]))
    rate = Fraction(config["rate"]).limit_denominator(100)
    yield (
        "{model} on {data}, images of {0}, batches of {batch_size} in {precision}, a rate of {1}, "
        "on {device}; {clock}; median and 95 % interval of {2} interleaved rounds."
    ).format(image, rate, rounds, **{**config, "rate": ""})
    shares = ", ".join(f"{name} {value:.4g} ms" for name, value in findings["step"].items())
    yield f"1,000 examples take: {shares}."
    backward = "A backward pass takes {median:.2f} ({low:.2f} to {high:.2f}) forward passes."
    yield backward.format(**findings["backward"])


def show_findings(findings: Findings) -> Iterator[str | Table]:
    """Return what `bench` prints: what was measured, the scorers and the strategies."""
    yield from describe(findings)
    yield Table(
        ("scorer", "cost", "95 %", "of fp32", "95 %", "correlation", "overlap"),
        [
            (
                name,
                *_both(s["cost"]),
                *_both(s["of_full"]),
                _known(s["correlation"], ".3f"),
                _known(s["overlap"], ".1%"),
            )
            for name, s in findings["scorers"].items()
        ],
        title="Scoring, relative to exact scoring of the same candidates",
        notes=[
            f"Cost: relative to exact scoring in {findings['config']['precision']}, the "
            "training's precision; of fp32: relative to exact scoring in fp32. 95 %: interval of "
            "the median. Correlation: of ranks, with exact scores in fp32. Overlap: the share of "
            "selected candidates that exact scores would select too. The model was trained briefly."
        ],
    )
    for name, remark in findings["remarks"].items():
        yield f"{name}: {'' if name in findings['scorers'] else 'not timed: '}{remark}"
    yield Table(
        ("strategy", "epoch", "95 %", "gain", "limit", "to limit", "95 %"),
        [
            (
                name,
                *_both(s["relative"]),
                f"{1 / s['relative']['median']:.2f}×",
                f"{s['limit']['median']:.3f}",
                *_both(s["over_limit"]),
            )
            for name, s in findings["strategies"].items()
        ],
        title="An epoch, relative to an epoch of traditional training",
        notes=[
            "Computed from short epochs. 95 %: interval of the median. Limit: the least "
            "that an epoch can cost: exact scoring of what is scored, ordinary steps on what is "
            "kept, and the strategy's own loading. To limit: the epoch divided by its limit."
        ],
    )


def _both(ratio: Row) -> tuple[str, str]:
    return f"{ratio['median']:.3f}", f"{ratio['low']:.2f}–{ratio['high']:.2f}"


def _known(value: float, how: str) -> str:
    """Return an agreement as text; it is unknown if the model diverged."""
    return "–" if math.isnan(value) else format(value, how)
