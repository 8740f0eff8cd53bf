"""Measure what selecting costs and does.

    scripts/bench                            the gates: ratios that may not exceed a limit
    scripts/bench steps.auto --seconds 60    one case, or all of a module of benchmarks/cases
    scripts/bench small --rounds 9 --out records/bench/small.json
    scripts/bench guide.audit --set data=mnist seeds=10,11,12
    scripts/bench --list                     all cases, with their settings
    scripts/bench --stale                    records whose measured code has changed

One thread. Variants take turns in rounds; printed are medians of the ratios within a round.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.case import GATES, SECONDS, Case, Row, find_cases, measure, modules
from benchmarks.stale import states_of
from selective_backprop_lab.records.provenance import write_record


def main(arguments: list[str]) -> int:
    """Measure, print rows, and write a record; return 1 if something is over its limit."""
    options = parsed(arguments)
    if options.list:
        for each in find_cases(modules()):
            print(f"{each.name:22} {each.about}")
            for name, default in each.settings.items():
                print(f"{'':24}{name}={default}")
        return 0
    if options.stale:
        print(*states_of(options.case), sep="\n")
        return 0
    torch.set_num_threads(1)
    cases = with_settings(find_cases(options.case or GATES), dict(options.set), options.rounds)
    recorded, rows = {each.name: settings for each, settings in cases}, list[Row]()
    for each, settings in cases:
        for fresh in measure(each, settings, seconds=options.seconds, rounds=options.rounds):
            print(line_of(fresh), flush=True)
            rows.append(fresh)
            if options.out:
                command = shlex.join(["scripts/bench", *arguments])
                write_record(options.out, command, {"cases": recorded, "rows": rows})
    return int(any(row.get("verdict") == "fail" for row in rows))


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        "scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("case", nargs="*", metavar="CASE", help="MODULE or MODULE.CASE; with --stale, records")
    add("--set", nargs="+", default=[], metavar="NAME=VALUE", type=_setting, help="of the cases")
    add("--out", type=Path, metavar="FILE", help="write a JSON record")
    add("--rounds", type=int, metavar="N", help="number of rounds, however wide intervals are")
    about = "begin no round, and no training, after this many seconds"
    add("--seconds", type=float, default=SECONDS, metavar="S", help=about)
    add("--list", action="store_true", help="print all cases and their settings")
    add("--stale", action="store_true", help="print which records are of code that has changed")
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, str]:
    name, sign, given = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text}: write NAME=VALUE")
    return name, given


def with_settings(
    cases: list[Case], given: dict[str, str], rounds: int | None
) -> list[tuple[Case, Row]]:
    """Return the cases, each with its settings; `given` and `rounds` replace defaults.

    Raises:
        SystemExit: if no case has a setting that is given.
    """
    known = {name for each in cases for name in each.settings}
    if unknown := given.keys() - known:
        raise SystemExit(f"--set {' '.join(unknown)}: there are {', '.join(sorted(known))}")
    found = []
    for each in cases:
        defaults = each.settings
        changed = {name: _as(defaults[name], given[name]) for name in defaults if name in given}
        if "rounds" in defaults and rounds is not None:
            changed["rounds"] = rounds
        found.append((each, defaults | changed))
    return found


def _as(default: Any, text: str) -> Any:
    """Convert a text to the type of the default; elements of a tuple are separated by commas."""
    if isinstance(default, tuple):
        return tuple(_as(default[0], part) for part in text.split(","))
    return text if default is None else type(default)(text)


def line_of(row: Row) -> str:
    """Return a row as it is printed."""
    row = dict(row)
    standard = {key: row.pop(key, None) for key in ("case", "quantity", "unit")}
    median, low, high, rounds = (row.pop(key, None) for key in ("median", "low", "high", "rounds"))
    words = [standard["case"]]
    if median is not None:
        spread = f" ({low:.4g} to {high:.4g}, {rounds} rounds)" if rounds != 1 else ""
        words.append(f"{standard['quantity']}: {median:.4g}{spread} {standard['unit']}")
    long = dict, list, tuple, type(None)
    words += [f"{key} {value}" for key, value in row.items() if not isinstance(value, long)]
    return " · ".join(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
