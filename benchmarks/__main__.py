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
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.case import GATES, ROOT, SECONDS, Case, Row, find_cases, measure, modules
from selective_backprop_lab.records.provenance import write_record

RECORDS = ("records/bench", "records/audit")


def main(arguments: list[str]) -> int:
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


def states_of(records: Sequence[str] = (), root: Path = ROOT) -> Iterator[str]:
    paths = [root / name for name in records] or [
        path for folder in RECORDS for path in sorted((root / folder).glob("*.json"))
    ]
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        state = state_of(record["code_version"], measured_by(record), root)
        yield f"{path.relative_to(root)}: {state}"


def measured_by(record: dict[str, Any]) -> list[str]:
    cases = find_cases(list(record.get("cases", ())))
    return sorted({file for case in cases for file in case.measures})


def state_of(version: str, files: Sequence[str], root: Path = ROOT) -> str:
    if not files:
        return "no case measures it any more"
    commit = version.split()[1] if version.startswith("git ") else "0+unknown"
    if _git(root, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        return f"unknown: {version} is not in the history here"
    changed = _git(root, "diff", "--name-only", commit, "HEAD", "--", *files)
    if changed is None or "uncommitted" in version:
        return f"unknown: {version}"
    names = changed.splitlines()
    first = ", ".join(names[:3]) + " …" * (len(names) > 3)
    return f"stale: {len(names)} files since {commit}, {first}" if names else "current"


def _git(root: Path, *command: str) -> str | None:
    done = subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
