"""Measuring a case: what it yields, one after the other, as rows of a record."""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.case import FEWEST, Case, Once, Quantity, Rounds, Row, row_of
from selective_backprop_lab.bench.rounds import enough_rounds, summarise

SECONDS = 600.0  # after which rounds end, however wide the intervals are


def measure(
    case: Case,
    settings: Row,
    *,
    seconds: float = SECONDS,
    rounds: int | None = None,
    known: Sequence[Row] = (),
    clock: Callable[[], float] = time.process_time,
) -> Iterator[Row]:
    """Measure what a case yields, and yield the rows.

    Args:
        case: what to measure.
        settings: of the case.
        seconds: wall seconds that rounds go on; of things that are measured once, after which no
            other begins.
        rounds: how many to take; None for as many as it needs.
        known: rows that are there already; what is among them is not measured again.
        clock: returns seconds; by default this process's CPU seconds.
    """
    begun = time.monotonic()
    for item in case.items(**settings):
        name = {"case": case.name} | item.about
        if any(_is_of(row, name, item) for row in known):
            continue
        if isinstance(item, Rounds):
            yield from (name | row for row in _in_rounds(item, seconds, rounds, clock))
        elif seconds >= SECONDS or time.monotonic() - begun < seconds:
            yield from [name | row for row in item.find()]


def _is_of(row: Row, name: Row, item: Rounds | Once) -> bool:
    """Return whether a row is of what has a name, and in rounds its first quantity."""
    if isinstance(item, Rounds):
        name = name | item.quantities[0].about | {"quantity": item.quantities[0].name}
    return row.items() >= name.items()


def _in_rounds(
    item: Rounds, seconds: float, rounds: int | None, clock: Callable[[], float]
) -> Iterator[Row]:
    arms = {name: partial(_timed, arm, clock) for name, arm in item.arms.items()}
    ratios = (
        [quantity.of for quantity in item.quantities] if item.known else [lambda _: float("nan")]
    )
    found = enough_rounds(
        arms,
        ratios,
        seconds=seconds,
        least=rounds or FEWEST,
        most=rounds or float("inf"),
        tell=_tell,
    )
    for quantity in item.quantities:
        yield _row(quantity, found)


def _row(quantity: Quantity, found: Sequence[Mapping[str, Any]]) -> Row:
    median = summarise([quantity.of(each) for each in found])
    row = quantity.about | row_of(quantity.name, quantity.unit, median, quantity.limit)
    if all(isinstance(taken, float) for taken in found[0].values()):
        row["seconds"] = {
            name: statistics.median(each[name] for each in found) for name in found[0]
        }
    return row


def _timed(arm: Callable[[], Any], clock: Callable[[], float]) -> Any:
    start = clock()
    returned = arm()
    return clock() - start if returned is None else returned


def _tell(rounds: int, spent: float) -> None:
    if sys.stderr.isatty():
        print(f"round {rounds}, {spent:.0f} s", end="\r", file=sys.stderr, flush=True)
