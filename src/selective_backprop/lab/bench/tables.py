"""The findings of `bench` as tables and sentences for a terminal."""

from collections.abc import Iterator
from fractions import Fraction

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from selective_backprop.guide._rounds import Median
from selective_backprop.lab.bench.harness import BASELINE, Findings


def describe(findings: Findings) -> Iterator[str]:
    """Say what was measured, and how a step divides into forward and backward."""
    config = findings.config
    image = "x".join(str(size) for size in config["image"])
    rate = Fraction(config["rate"]).limit_denominator(100)
    yield (
        f"{config['model']} on {config['data']}, images of {image}, batches of "
        f"{config['batch_size']} in {config['precision']}, a rate of {rate}, on "
        f"{config['device']}; {config['clock']}; "
        f"median and 95 % interval of {findings.rounds} interleaved rounds."
    )
    shares = ", ".join(f"{name} {value:.4g} ms" for name, value in findings.step.items())
    yield f"1,000 examples take: {shares}."
    yield f"A backward pass takes {_spread(findings.backward)} forward passes."


def scorer_table(findings: Findings) -> Table:
    """Return one row per scorer: its cost in forward passes, and how far it agrees."""
    table = _table("scorer", "cost", "95 %", "of fp32", "95 %", "correlation", "overlap")
    for name, found in findings.scorers.items():
        table.add_row(
            name,
            f"{found.cost.median:.3f}",
            _interval(found.cost),
            f"{found.of_full.median:.3f}",
            _interval(found.of_full),
            f"{found.correlation:.3f}",
            f"{found.overlap:.1%}",
        )
    return _entitled(
        table,
        "Scoring, in eval forwards over the same candidates",
        f"Cost: of a forward in {findings.config['precision']}, as training has it; of fp32: of "
        "one in full precision. 95 %: the median's interval. Correlation of ranks with scores in "
        "full precision; overlap of the highest share that is selected. Taken from a model that "
        "was trained for a moment.",
    )


def strategy_table(findings: Findings) -> Table:
    """Return one row per strategy: its epoch, relative to traditional's and to its limit."""
    table = _table("strategy", "epoch", "95 %", "gain", "limit", "to limit", "95 %")
    for name, found in findings.strategies.items():
        table.add_row(
            name,
            f"{found.relative.median:.3f}",
            "–" if name == BASELINE else _interval(found.relative),
            f"{1 / found.relative.median:.2f}×",
            f"{found.limit.median:.3f}",
            f"{found.over_limit.median:.3f}",
            _interval(found.over_limit),
        )
    return _entitled(
        table,
        "An epoch, relative to traditional training's",
        "95 %: the median's interval. Limit: forward passes over what is scored, ordinary steps on "
        "what is kept, and the strategy's own loading, each timed alone in the same rounds.",
    )


def remarks(findings: Findings) -> Iterator[str]:
    """Say what has to be said of scorers, and which are missing."""
    for name, remark in findings.remarks.items():
        missing = "" if name in findings.scorers else "not timed: "
        yield f"{name}: {missing}{remark}"


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.title_justify, table.title_style = "left", "bold"
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _entitled(table: Table, title: str, caption: str) -> Table:
    table.title = Text(title)
    table.caption = Text(caption, justify="left")
    table.caption_style = "dim"
    return table


def _interval(ratio: Median) -> str:
    return f"{ratio.low:.2f}–{ratio.high:.2f}"


def _spread(ratio: Median) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
