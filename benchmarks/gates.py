"""Measure what selection costs, as ratios within one run, against the gates it has to pass.

    scripts/bench                       every gate
    scripts/bench --only step           the gates whose name begins with "step"
    scripts/bench --out bench.json      write a record

Process CPU time, one thread. A gate passes on the upper end of its interval, fails on the lower
end, and is unresolved in between.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from gate import BATCH
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from saving_gates import cycle_gates, int8_gates, reuse_gates
from selection_gates import selection_gates
from step_gates import size_gates, stale_gates, step_gates, traditional_gates

from selective_backprop.lab.provenance import code_version, hardware, versions
from selective_backprop.lab.rounds import SECONDS, Ratio, measure

PARTS = {
    "selection": selection_gates,
    "step": step_gates,
    "stale": stale_gates,
    "size": size_gates,
    "traditional": traditional_gates,
    "int8": int8_gates,
    "cycle": cycle_gates,
    "reuse": reuse_gates,
}


def main() -> int:
    """Measure, print a table, write a record; return 1 if a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="gates whose name begins so")
    parser.add_argument("--width", type=int, default=16, help="channels of the net's first layer")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="most per gate")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    table = Table("gate", "limit", "ratio", "95 % interval", "rounds", "verdict", box=None)
    entries = []
    # a part is begun only if it may have such a gate, since some take long to prepare
    parts = [
        part
        for name, part in PARTS.items()
        if name.startswith(options.only) or options.only.startswith(name)
    ]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        for gate in (gate for part in parts for gate in part(options.width)):
            if not gate.name.startswith(options.only):
                continue
            task = progress.add_task(gate.name)

            def tell(found: Ratio, task: int = task, name: str = gate.name) -> None:
                text = f"{name}: {found.median:.4f} ({found.low:.4f} to {found.high:.4f})"
                progress.update(task, description=f"{text}, {found.rounds} rounds")  # ty: ignore

            found = measure(gate.arms, gate.ratio, tell=tell, seconds=options.seconds)
            progress.remove_task(task)
            verdict = gate.verdict(found)
            interval = f"{found.low:.4f} to {found.high:.4f}"
            table.add_row(
                gate.name,
                f"{gate.limit:.4f}",
                f"{found.median:.4f}",
                interval,
                str(found.rounds),
                verdict,
            )
            console.print(f"{gate.name}: {found.median:.4f} ({interval}), {verdict}")
            entries.append(
                {
                    "gate": gate.name,
                    "claim": gate.claim,
                    "limit": gate.limit,
                    "verdict": verdict,
                    **asdict(found),
                }
            )
    console.print(table)
    if options.out:
        record = {
            "command": "scripts/bench " + " ".join(sys.argv[1:]),
            "net": f"resnet9, width {options.width}",
            "batch_size": BATCH,
            "clock": "process CPU time, one thread, interleaved rounds",
            "code_version": code_version(),
            "versions": versions(),
            "hardware": hardware(),
            "gates": entries,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(entry["verdict"] == "fail" for entry in entries))


if __name__ == "__main__":
    sys.exit(main())
