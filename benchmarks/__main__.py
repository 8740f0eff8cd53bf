"""Measure what selecting costs and does.

    scripts/bench                            the gates: ratios that may not exceed a limit
    scripts/bench steps.auto --seconds 60    one case, or all of a module of benchmarks/cases
    scripts/bench small --rounds 9 --out records/bench/small.json
    scripts/bench guide.audit --set data=mnist seeds=10,11,12
    scripts/bench --list                     all cases, with their settings
    scripts/bench --stale                    records of code that has changed since

One thread; arms take turns in rounds, and the medians of ratios within a round are told. A record
that is there already, of the same code and settings, is gone on with.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.case import GATES, Case, Row, find_cases, modules
from benchmarks.measuring import SECONDS, measure
from benchmarks.stale import states_of
from selective_backprop_lab.records.provenance import code_version, write_record


def main(arguments: list[str]) -> int:
    """Measure, print rows, write a record; return 1 if something is over its limit."""
    options = parsed(arguments)
    if options.list:
        for each in find_cases(modules()):
            print(f"{each.name:22} {each.about}")
            print(
                *(f"{'':24}{name}={default}" for name, default in each.settings.items()), sep="\n"
            )
        return 0
    if options.stale:
        print(*states_of(options.case), sep="\n")
        return 0
    torch.set_num_threads(1)
    cases = with_settings(find_cases(options.case or GATES), dict(options.set), options.rounds)
    told = {each.name: settings for each, settings in cases}
    rows = gone_on_with(options.out, told)
    for each, settings in cases:
        for fresh in measure(
            each, settings, seconds=options.seconds, rounds=options.rounds, known=rows
        ):
            print(line_of(fresh), flush=True)
            rows.append(fresh)
            if options.out:
                command = shlex.join(["scripts/bench", *arguments])
                write_record(options.out, command, {"cases": told, "rows": rows})
    return int(any(row.get("verdict") == "fail" for row in rows))


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "case", nargs="*", metavar="CASE", help="MODULE or MODULE.CASE; of --stale, records"
    )
    parser.add_argument(
        *("--set",), nargs="+", default=[], metavar="NAME=VALUE", type=_setting, help="of the cases"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a JSON record")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="so many, however wide intervals are"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help="most for what takes turns; of a "
        "case that does one thing after another, when to begin no more",
    )
    parser.add_argument("--list", action="store_true", help="say what there is to measure")
    parser.add_argument("--stale", action="store_true", help="say which records are of other code")
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, str]:
    name, sign, given = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text}: write NAME=VALUE")
    return name, given


def with_settings(
    cases: list[Case], given: dict[str, str], rounds: int | None
) -> list[tuple[Case, Row]]:
    """Return cases with their settings, changed as given.

    Raises:
        SystemExit: if no case has a setting of a name.
    """
    known = {name for each in cases for name in each.settings}
    if unknown := given.keys() - known:
        raise SystemExit(f"--set {' '.join(unknown)}: there are {', '.join(sorted(known))}")
    found = []
    for each in cases:
        settings = each.settings | {
            name: _as(default, given[name])
            for name, default in each.settings.items()
            if name in given
        }
        if "rounds" in settings and rounds is not None:
            settings["rounds"] = rounds
        found.append((each, settings))
    return found


def _as(default: Any, text: str) -> Any:
    """Return what was typed as what stands there by default; a tuple is typed with commas."""
    if isinstance(default, tuple):
        return tuple(_as(default[0], part) for part in text.split(","))
    return text if default is None else type(default)(text)


def gone_on_with(path: Path | None, told: dict[str, Row]) -> list[Row]:
    """Return the rows of a record of the same code and settings; of any other, none."""
    if path is None or not path.exists():
        return []
    there = json.loads(path.read_text(encoding="utf-8"))
    same = there["code_version"] == code_version()
    return (
        there["rows"]
        if same and there.get("cases") == json.loads(json.dumps(told, default=str))
        else []
    )


def line_of(row: Row) -> str:
    """Return a row as it is printed."""
    row = dict(row)
    standard = {key: row.pop(key, None) for key in ("case", "quantity", "unit")}
    median, low, high, rounds = (row.pop(key, None) for key in ("median", "low", "high", "rounds"))
    words = [standard["case"], *(f"{key} {value}" for key, value in row.items() if _short(value))]
    if median is not None:
        spread = f" ({low:.4g} to {high:.4g}, {rounds} rounds)" if rounds != 1 else ""
        words.insert(1, f"{standard['quantity']}: {median:.4g}{spread} {standard['unit']}")
    return " · ".join(words)


def _short(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | list | tuple)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
