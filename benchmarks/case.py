"""What a case of `scripts/bench` is made of.

To add one, write a generator in a module of `benchmarks/cases`; nothing else needs to know of it:

    @case("src/selective_backprop/selectors")        # what it measures: see --stale
    def drawing(*, count: int = 128):                # settings, which --set changes
        "What drawing costs."                        # what --list says
        ours, plain = ...
        yield Rounds(
            arms={"ours": ours, "plain": plain},     # take turns, as many rounds as it needs
            quantities=[Quantity("drawing", lambda spent: spent["ours"] / spent["plain"], limit=2)],
        )
        yield Once({"count": count}, lambda: [value("kept", 0.5, "share")])

An arm that returns nothing is charged its CPU seconds; what one returns is what the quantities are
taken of. What a case yields is measured before the case goes on, so it may look at it afterwards.
A row of a record has case, quantity and unit, the median over so many rounds with the ends of its
95 % interval, limit and verdict where there is a limit, and the columns that `about` or the case
itself adds. A page shows rows by a table of `pages.py`.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from selective_backprop_lab.bench.rounds import Median

Row = dict[str, Any]
FOLDER = Path(__file__).parent / "cases"
GATES = ("steps", "savings")  # what is measured where nothing is named
FEWEST = 16  # rounds before an interval decides whether there are enough


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
    """Arms that take turns, and what is made of them."""

    arms: Mapping[str, Callable[[], Any]]
    quantities: Sequence[Quantity]
    about: Row = field(default_factory=dict)  # columns of all its rows
    known: bool = True  # whether rounds end once every quantity is known within one per cent


@dataclass(frozen=True)
class Once:
    """Something that is measured once. `about` are columns of all its rows, and name it."""

    about: Row
    find: Callable[[], Iterable[Row]]


def value(quantity: str, number: float, unit: str, limit: float | None = None, **more: Any) -> Row:
    """Return the row of what was taken once."""
    return row_of(quantity, unit, Median(number, number, number, 1), limit) | more


def row_of(quantity: str, unit: str, found: Median, limit: float | None) -> Row:
    """Return a row of a record, with a verdict where there is a limit."""
    judged = {} if limit is None else {"limit": limit, "verdict": found.verdict(limit)}
    return {"quantity": quantity, "unit": unit, **vars(found), **judged}


@dataclass(frozen=True)
class Case:
    """A generator of what is to be measured."""

    name: str  # module.function
    about: str
    measures: Sequence[str]  # paths from the root
    items: Callable[..., Iterator[Rounds | Once]]

    @property
    def settings(self) -> Row:
        """Its settings by name, as they are where nothing is set."""
        parameters = inspect.signature(self.items).parameters.values()
        return {each.name: each.default for each in parameters}


def case(*measures: str) -> Callable[[Callable[..., Iterator[Rounds | Once]]], Case]:
    """Make a case of a generator, given what it measures: files or folders, from the root."""

    def made(items: Callable[..., Iterator[Rounds | Once]]) -> Case:
        name = f"{items.__module__.rpartition('.')[2]}.{items.__name__}"
        return Case(name, (inspect.getdoc(items) or "").partition("\n")[0], measures, items)

    return made


def modules() -> list[str]:
    """Return the names of all modules of cases."""
    return sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))


def find_cases(names: Sequence[str]) -> list[Case]:
    """Return the cases of some modules, or some cases by their whole names.

    Modules that are not named are not imported: some run where others' packages are missing.

    Raises:
        SystemExit: if there is none of a name.
    """
    found: dict[str, Case] = {}
    for name in names:
        module, _, one = name.partition(".")
        if module not in modules():
            raise SystemExit(f"no case {name!r}; there are {', '.join(modules())}; see --list")
        there = [
            each
            for each in vars(import_module(f"benchmarks.cases.{module}")).values()
            if isinstance(each, Case) and each.name.endswith(f".{one}" if one else "")
        ]
        if not there:
            raise SystemExit(f"no case {name!r} in benchmarks/cases/{module}.py; see --list")
        found |= {each.name: each for each in there if each.name.startswith(f"{module}.")}
    return list(found.values())
