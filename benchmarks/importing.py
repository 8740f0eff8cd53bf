"""Measure what importing the package costs beside torch, and what --help costs beside that.

    python benchmarks/importing.py --out records/bench/import.json

New processes do the one and the other in turn, so that a machine that slows down does so for all.
CPU seconds of a whole process, one thread; in rounds, so that a ratio has a spread. torch leaves
enough behind that the next import, whatever it is, sets off a full garbage collection, a tenth of
a second long. It is counted as torch's.
"""

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles

from recording import write_record
from rich.console import Console

ARMS = {
    "torch": ["-c", "import torch, gc; gc.collect()"],
    "package": ["-c", "import torch, gc; gc.collect(); import selective_backprop"],
    "help": ["-m", "selective_backprop", "--help"],
}
LIMITS = {("package", "torch"): 1.1, ("help", "package"): 1.3}


def main() -> int:
    """Measure, print, write a record; return 1 if a median ratio is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="of one process for each")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    for arguments in ARMS.values():
        seconds_of(arguments)  # bytecode is written, and files are in memory
    taken = [
        {name: seconds_of(arguments) for name, arguments in in_turn(number)}
        for number in range(options.rounds)
    ]
    ratios = {
        f"{one} / {other}": {"limit": limit, **spread([each[one] / each[other] for each in taken])}
        for (one, other), limit in LIMITS.items()
    }
    entry = {
        "unit": "CPU seconds of a process, and their ratios in one round",
        "rounds": options.rounds,
        **{name: spread([each[name] for each in taken]) for name in ARMS},
        **ratios,
    }
    Console().print_json(data=entry)
    if options.out:
        write_record(options.out, **entry)
    return int(any(each["median"] > each["limit"] for each in ratios.values()))


def in_turn(number: int) -> Sequence[tuple[str, list[str]]]:
    """Return the arms, the last one first in every other round."""
    arms = list(ARMS.items())
    return arms if number % 2 else arms[::-1]


def seconds_of(arguments: Sequence[str]) -> float:
    """Return the CPU seconds of a new process of Python."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or the package is compiled each time
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, and the quartiles about it."""
    low, middle, high = quantiles(values, n=4)
    return {"median": round(middle, 4), "low": round(low, 4), "high": round(high, 4)}


if __name__ == "__main__":
    sys.exit(main())
