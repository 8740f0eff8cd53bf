"""What `bench` and `advise` found, as tables and sentences for a terminal."""

import math
from collections.abc import Iterator
from fractions import Fraction

from rich.text import Text

import selective_backprop as sb
from selective_backprop.guide import Forecast, Median
from selective_backprop.guide._mixes import BASELINE
from selective_backprop.lab.analysis.tables import Table
from selective_backprop.lab.bench.harness import LEAST, Findings
from selective_backprop.lab.bench.workload import is_shape
from selective_backprop.lab.recipe import Recipe


def describe(findings: Findings) -> Iterator[str]:
    """Say what was measured, and how a step divides into forward and backward."""
    config = findings.config
    image = "x".join(str(size) for size in config["image"])
    yield (
        f"{config['model']} on {config['data']}, images of {image}, batches of "
        f"{config['batch_size']} in {config['precision']}, a rate of {_share(config['rate'])}, on "
        f"{config['device']}; {config['clock']}; "
        f"median and 95 % interval of {findings.rounds} interleaved rounds."
    )
    shares = ", ".join(f"{name} {value:.4g} ms" for name, value in findings.step.items())
    yield f"1,000 examples take: {shares}."
    backward = findings.backward
    yield (
        f"A backward pass takes {backward.median:.2f} ({backward.low:.2f} to {backward.high:.2f}) "
        "forward passes."
    )


def show_findings(findings: Findings) -> Iterator[str | Table]:
    """Return what `bench` says: what was measured, the scorers and the strategies."""
    yield from describe(findings)
    yield Table(
        ("scorer", "cost", "95 %", "of fp32", "95 %", "correlation", "overlap"),
        [
            (
                name,
                *_both(s.cost),
                *_both(s.of_full),
                _known(s.correlation, ".3f"),
                _known(s.overlap, ".1%"),
            )
            for name, s in findings.scorers.items()
        ],
        title="Scoring, in exact scoring of the same candidates",
        notes=[
            f"Cost: of exact scores in {findings.config['precision']}, as training has it; of "
            "fp32: of those in full precision. 95 %: the median's interval. Correlation of ranks "
            "with scores in full precision; overlap of the highest share that is selected. Taken "
            "from a model that was trained for a moment."
        ],
    )
    for name, remark in findings.remarks.items():
        yield f"{name}: {'' if name in findings.scorers else 'not timed: '}{remark}"
    yield Table(
        ("strategy", "epoch", "95 %", "gain", "limit", "to limit", "95 %"),
        [
            (
                name,
                *_both(s.relative),
                f"{1 / s.relative.median:.2f}×",
                f"{s.limit.median:.3f}",
                *_both(s.over_limit),
            )
            for name, s in findings.strategies.items()
        ],
        title="An epoch, relative to traditional training's",
        notes=[
            "Computed from loops of a few batches. 95 %: the median's interval. Limit: exact "
            "scoring of what is scored, ordinary steps on what is kept, and the strategy's own "
            "loading, in the same rounds."
        ],
    )


def show_verdict(advice: sb.guide.Advice) -> Iterator[Text]:
    """Return what `advise` says first: what to do, why, and the lines to write."""
    advised = advice.recommendation
    yield from map(Text, (advised.verdict, *advised.reasons))
    if advised.code:
        yield Text("")
    yield from (Text(f"    {line}", no_wrap=True, overflow="ignore") for line in advised.code)


def show_measurements(recipe: Recipe, advice: sb.guide.Advice) -> Iterator[str | Table]:
    """Return what `advise --verbose` says besides: what was measured, and what epochs cost."""
    yield ""
    yield from _describe_advice(recipe, advice)
    # Of few rounds there is no interval, and both ends are of all.
    spread = "95 %" if advice.rounds >= LEAST else "all rounds"
    if advice.scorers:
        yield Table(
            ("scorer", "cost", spread, "correlation", "overlap"),
            [
                (
                    name,
                    *_both(s.cost, 2),
                    _known(s.correlation, ".3f"),
                    _known(s.overlap, ".0%"),
                )
                for name, s in advice.scorers.items()
            ],
            title="Cheap scorers",
            notes=["Cost: in exact scoring. Overlap: of the highest share that is selected."],
        )
    yield Table(
        ("strategy", "worth", "4 of 5", "epoch", spread, "seconds", "training", "varies"),
        [
            (
                name,
                *_worth(name, each),
                *_both(each.relative, 2),
                f"{each.seconds.median:.3g}",
                "–" if each.training is None else f"{each.training:.2f}",
                "yes" if each.varies else "",
            )
            for name, each in sorted(advice.forecasts.items(), key=_rank)
        ],
        title="Strategies, by what they are likely worth",
        notes=[
            "Worth: how many times more traditional training equalled one of these in equal "
            "seconds, by this project's records of data like yours; 4 of 5: an interval that held "
            "so many of the worths on data that were left out; –: not on record. Epoch: what one "
            "costs while it selects, relative to traditional training's. Training: the whole of "
            "it, with the epochs in which it does not select. Varies: it depends on the losses, "
            "and changes as the model learns."
        ],
    )
    yield from (f"{name}: {words}" for name, words in advice.remarks.items())
    yield from (f"Left out for want of time: {what}." for what in advice.left_out)


def _describe_advice(recipe: Recipe, advice: sb.guide.Advice) -> Iterator[str]:
    """Say what was measured, where the time goes, and where losses and gradients lie."""
    config = advice.config
    yield (
        f"{recipe.model} on {recipe.data}, {config['examples']:,} examples, batches of "
        f"{config['batch_size']}, a rate of {_share(config['rate'])}, on {config['device']}; "
        f"{config['clock']}; "
        f"{advice.rounds} round{'s' * (advice.rounds > 1)} in {advice.seconds:.0f} s."
    )
    ordered = sorted(advice.shares.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{phase} {share:.0%}" for phase, share in ordered if share >= 0.005)
    yield f"A traditional epoch is {shares}."
    yield (
        f"A backward pass takes {advice.backward.median:.2f} forward passes; scoring an example "
        f"takes {advice.scoring.median:.2f} of training on it."
    )
    yield from () if is_shape(recipe.data) else advice.traits.findings
    found = advice.redundancy
    if found is None:
        return
    if is_shape(recipe.data):
        yield "The images are made up: the costs are real, the losses and gradients not yours."
    yield (
        f"After {found.steps} steps on a copy, of {found.examples:,} examples: a tenth of the "
        f"losses are below {found.quantiles[2]:.3g}, half below {found.quantiles[10]:.3g}, nine "
        f"tenths below {found.quantiles[18]:.3g}. The highest {found.rate:.0%} hold "
        f"{found.loss_share:.0%} of the loss and supply {found.gradient_share:.0%} of the gradient."
    )
    yield (
        f"Against the gradient of all, theirs has a cosine of {found.cosine:.2f} (a random "
        f"selection's: {found.random_cosine:.2f}) and the sign of {found.equal_signs:.0%} of the "
        f"parameters (random: {found.random_equal_signs:.0%})."
    )


def _share(rate: float) -> Fraction:
    return Fraction(rate).limit_denominator(100)


def _both(ratio: Median, digits: int = 3) -> tuple[str, str]:
    """Return a ratio's median and its interval."""
    return f"{ratio.median:.{digits}f}", f"{ratio.low:.2f}–{ratio.high:.2f}"


def _worth(name: str, found: Forecast) -> tuple[str, str]:
    if found.pays is None:
        return ("1.00" if name == BASELINE else "–"), "–"
    return f"{found.pays.times:.2f}", f"{found.pays.low:.2f}–{found.pays.high:.2f}"


def _rank(strategy: tuple[str, Forecast]) -> tuple[float, float]:
    """Rank a strategy by its worth at equal seconds, and what is not on record by its cost."""
    name, found = strategy
    known = float(name == BASELINE) if found.pays is None else found.pays.times
    return -known, found.relative.median


def _known(value: float, how: str) -> str:
    """Return an agreement, which is unknown of a model that diverged."""
    return "–" if math.isnan(value) else format(value, how)
