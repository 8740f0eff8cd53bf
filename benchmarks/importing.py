"""Measure what importing the package costs beside importing torch, which it cannot do without.

    python benchmarks/importing.py --out records/bench/import.json

New processes import the one and the other in turn, so that a machine that slows down does so for
both. CPU seconds of a whole process, one thread; pairs, so that the ratio has a spread. Both end
with a full garbage collection: torch leaves enough behind that the next import, whatever it is,
sets one off, a fifth of a second long.
"""

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from recording import write_record
from rich.console import Console

LIMIT = 1.1
ARMS = {
    "torch": "import torch, gc; gc.collect()",
    "package": "import selective_backprop, gc; gc.collect()",
}


def main() -> int:
    """Measure, print, write a record; return 1 if the median ratio is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="of one process for each")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    for statement in ARMS.values():
        seconds_of(statement)  # bytecode is written, and files are in memory
    taken = [
        {name: seconds_of(statement) for name, statement in in_turn(number)}
        for number in range(options.rounds)
    ]
    ratios = [each["package"] / each["torch"] for each in taken]
    entry = {
        "unit": "CPU seconds of a process, and their ratio in one round",
        "limit": LIMIT,
        "rounds": options.rounds,
        **{name: spread([each[name] for each in taken]) for name in ARMS},
        "ratio": spread(ratios),
    }
    Console().print_json(data=entry)
    if options.out:
        write_record(options.out, **entry)
    return int(median(ratios) > LIMIT)


def in_turn(number: int) -> Sequence[tuple[str, str]]:
    """Return the arms, the other one first in every other round."""
    arms = list(ARMS.items())
    return arms if number % 2 else arms[::-1]


def seconds_of(statement: str) -> float:
    """Return the CPU seconds of a new process that runs a statement."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or the package is compiled each time
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, and the quartiles about it."""
    low, _, high = quantiles(values, n=4)
    return {"median": round(median(values), 4), "low": round(low, 4), "high": round(high, 4)}


if __name__ == "__main__":
    sys.exit(main())
