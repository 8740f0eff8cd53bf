"""Cases of `scripts/bench`: how to write one, and how they are measured.

To add a case, write a generator in a module of `benchmarks/cases`:

    @case("src/selective_backprop/selectors")        # the files whose speed it measures
    def drawing(*, count: int = 128):                # settings, which --set changes
        "The CPU time of a draw."                    # shown by --list
        ours, plain = ...
        yield Rounds(
            arms={"ours": ours, "plain": plain},     # take turns, until the quantity is known
            quantities=[Quantity("drawing", lambda spent: spent["ours"] / spent["plain"], limit=2)],
        )
        yield value("kept", 0.5, "share", count=count)

It yields rounds to take, and rows of what it measured itself. In a round, an arm that returns None
is charged its CPU seconds; of other arms, the quantities get what they return. A row of a record
has case, quantity and unit; the median over the rounds with its 95 % interval; limit and verdict if
there is a limit; and the columns of `about`. A page shows rows by a table of `pages.py`.
"""

import inspect
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from selective_backprop_lab.bench.rounds import Median, enough_rounds, summarise

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks/cases"
GATES = ("steps",)  # measured if no case is named
FEWEST = 16  # rounds before an interval decides whether there are enough
SECONDS = 600.0  # after which no round begins, however wide the intervals are


@dataclass(frozen=True)
class Quantity:
    """A number of each round, of which the median counts."""

    name: str
    of: Callable[[Mapping[str, Any]], float]  # of what the arms of a round took or returned
    unit: str = "ratio"
    limit: float | None = None  # the most that it may be
    about: Row = field(default_factory=dict)  # columns of its row


@dataclass(frozen=True)
class Rounds:
    """Arms that take turns, and the quantities that are computed from them."""

    arms: Mapping[str, Callable[[], Any]]
    quantities: Sequence[Quantity]
    about: Row = field(default_factory=dict)  # columns of all its rows
    known: bool = True  # whether rounds end once every quantity is known within one per cent


def value(quantity: str, number: float, unit: str, limit: float | None = None, **more: Any) -> Row:
    return row_of(quantity, unit, Median(number, number, number, 1), limit) | more


def row_of(quantity: str, unit: str, found: Median, limit: float | None) -> Row:
    judged = {} if limit is None else {"limit": limit, "verdict": found.verdict(limit)}
    return {"quantity": quantity, "unit": unit, **vars(found), **judged}


@dataclass(frozen=True)
class Case:
    """A generator of rounds and rows."""

    name: str  # module.function
    about: str
    measures: Sequence[str]  # paths from the root
    items: Callable[..., Iterator[Rounds | Row]]

    @property
    def settings(self) -> Row:
        parameters = inspect.signature(self.items).parameters.values()
        return {each.name: each.default for each in parameters}


def case(*measures: str) -> Callable[[Callable[..., Iterator[Rounds | Row]]], Case]:
    """Make a case of a generator, given the files or folders that it measures."""

    def made(items: Callable[..., Iterator[Rounds | Row]]) -> Case:
        name = f"{items.__module__.rpartition('.')[2]}.{items.__name__}"
        return Case(name, (inspect.getdoc(items) or "").partition("\n")[0], measures, items)

    return made


def modules() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))


def find_cases(names: Sequence[str]) -> list[Case]:
    """Return all cases of the named modules, and the cases of names such as `steps.auto`.

    Only these modules are imported, because some need packages that others do not.
    """
    found: dict[str, Case] = {}
    for name in names:
        module = name.partition(".")[0]
        if module not in modules():
            raise SystemExit(f"no case {name!r}; there are {', '.join(modules())}; see --list")
        every = vars(import_module(f"benchmarks.cases.{module}")).values()
        cases = {each.name: each for each in every if isinstance(each, Case)}
        own = {key: cases[key] for key in cases if f"{key}.".startswith(f"{name}.")}
        if not own:
            raise SystemExit(f"no case {name!r} in benchmarks/cases/{module}.py; see --list")
        found |= own
    return list(found.values())


def measure(
    case: Case,
    settings: Row,
    *,
    seconds: float = SECONDS,
    rounds: int | None = None,
    clock: Callable[[], float] = time.process_time,
) -> Iterator[Row]:
    """Measure a case, and yield the rows.

    No round begins after so many wall seconds. If they are fewer than `SECONDS`, the case also
    measures nothing more by itself after them. Without a number of rounds, there are as many as it
    takes to know every quantity.
    """
    begun = time.monotonic()
    for item in case.items(**settings):
        name = {"case": case.name}
        if isinstance(item, Rounds):
            yield from (name | row for row in _in_rounds(item, seconds, rounds, clock))
            continue
        yield name | item
        if time.monotonic() - begun >= seconds < SECONDS:
            return


def _in_rounds(
    item: Rounds, seconds: float, rounds: int | None, clock: Callable[[], float]
) -> Iterator[Row]:
    found = enough_rounds(
        {name: partial(_timed, arm, clock) for name, arm in item.arms.items()},
        [quantity.of for quantity in item.quantities if item.known],
        seconds=seconds,
        least=rounds or FEWEST,
        most=rounds or float("inf"),
        tell=_tell,
    )
    took = {}
    if all(isinstance(each, float) for each in found[0].values()):
        medians = {name: statistics.median(each[name] for each in found) for name in found[0]}
        took = {"seconds": medians}
    for quantity in item.quantities:
        median = summarise([quantity.of(each) for each in found])
        row = row_of(quantity.name, quantity.unit, median, quantity.limit)
        yield item.about | quantity.about | row | took


def _timed(arm: Callable[[], Any], clock: Callable[[], float]) -> Any:
    start = clock()
    returned = arm()
    return clock() - start if returned is None else returned


def _tell(rounds: int, spent: float) -> None:
    if sys.stderr.isatty():
        print(f"round {rounds}, {spent:.0f} s", end="\r", file=sys.stderr, flush=True)
