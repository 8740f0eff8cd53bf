"""Measure what selection costs, as ratios within one run, against the gates it has to pass.

    scripts/bench                       every gate
    scripts/bench --only step stale     the gates whose names begin with "step" or "stale"
    scripts/bench --only small          what strategies add where steps are small; see small.py
    scripts/bench --only tokens         steps on chosen tokens; see tokens.py
    scripts/bench --out bench.json      write a record

Process CPU time, one thread. A gate passes on the upper end of its interval, fails on the lower
end, and is unresolved in between.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import small
import tokens
import torch
from gate import BATCH, SECONDS, Gate, Ratio, measure
from recording import write_record
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from saving_gates import cycle_gates, int8_gates, reuse_gates
from selection_gates import selection_gates
from step_gates import (
    auto_gates,
    size_gates,
    small_step_gates,
    stale_gates,
    step_gates,
    traditional_gates,
)

PARTS = {
    "selection": selection_gates,
    "step": step_gates,
    "small step": small_step_gates,
    "stale": stale_gates,
    "size": size_gates,
    "traditional": traditional_gates,
    "auto": auto_gates,
    "int8": int8_gates,
    "cycle": cycle_gates,
    "reuse": reuse_gates,
}


def main() -> int:
    """Measure, print a table, write a record; return 1 if a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="gates whose names begin so")
    parser.add_argument("--width", type=int, default=16, help="channels of the net's first layer")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="most per gate")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    if options.only == ["small"]:
        return small.report(out=options.out)
    if options.only == ["tokens"]:
        return tokens.report(out=options.out)
    torch.set_num_threads(1)
    console = Console()
    table = Table("gate", "limit", "ratio", "95 % interval", "rounds", "verdict", box=None)
    entries = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        for gate in chosen(options.only, options.width):
            found = run(gate, progress, options.seconds)
            verdict = gate.verdict(found)
            interval = f"{found.low:.4f} to {found.high:.4f}"
            numbers = f"{gate.limit:.4f}", f"{found.median:.4f}", interval, str(found.rounds)
            table.add_row(gate.name, *numbers, verdict)
            console.print(f"{gate.name}: {found.median:.4f} ({interval}), {verdict}")
            told = {"gate": gate.name, "claim": gate.claim, "limit": gate.limit}
            entries.append({**told, "verdict": verdict, **asdict(found)})
    console.print(table)
    if options.out:
        write(options.out, options.width, entries)
    return int(any(entry["verdict"] == "fail" for entry in entries))


def chosen(names: Sequence[str], width: int) -> Iterator[Gate]:
    """Yield the gates whose names begin with one of some; their parts alone are prepared."""
    for name, part in PARTS.items():
        if any(name.startswith(wanted) or wanted.startswith(name) for wanted in names):
            for gate in part(width):
                if gate.name.startswith(tuple(names)):
                    yield gate


def run(gate: Gate, progress: Progress, seconds: float) -> Ratio:
    """Measure a gate, and show what is known of it meanwhile."""
    task = progress.add_task(gate.name)

    def tell(found: Ratio) -> None:
        text = f"{gate.name}: {found.median:.4f} ({found.low:.4f} to {found.high:.4f})"
        progress.update(task, description=f"{text}, {found.rounds} rounds")

    found = measure(gate.arms, gate.ratio, tell=tell, seconds=seconds)
    progress.remove_task(task)
    return found


def write(file: Path, width: int, entries: list[dict[str, Any]]) -> None:
    """Write a record."""
    write_record(
        file,
        net=f"resnet9, width {width}",
        batch_size=BATCH,
        clock="process CPU time, one thread, interleaved rounds",
        gates=entries,
    )


if __name__ == "__main__":
    sys.exit(main())
