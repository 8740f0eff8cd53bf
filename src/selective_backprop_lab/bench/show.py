"""Show the findings of `bench`: tables and sentences for a terminal."""

import math
from collections.abc import Iterator
from fractions import Fraction

from selective_backprop_lab.analysis.tables import Table
from selective_backprop_lab.bench.harness import Findings, Row


def show_findings(findings: Findings) -> Iterator[str | Table]:
    """Return what `bench` prints: what was measured, a step, the scorers and the strategies."""
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
    return "–" if math.isnan(value) else format(value, how)  # NaN if the model diverged
