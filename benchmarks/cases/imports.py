"""What importing the package costs beside torch, and what --help costs beside that.

New processes take turns. torch leaves enough behind that the next import, whatever it is, sets off
a full garbage collection, a tenth of a second long; it is counted as torch's.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.case import Quantity, Rounds, case

ARMS = {
    "torch": ["-c", "import torch, gc; gc.collect()"],
    "package": ["-c", "import torch, gc; gc.collect(); import selective_backprop"],
    "help": ["-m", "selective_backprop", "--help"],
}
LIMITS = {("package", "torch"): 1.1, ("help", "package"): 1.3}


@case("src/selective_backprop", "src/selective_backprop_lab/cli")
def imports() -> Iterator[Rounds]:
    """What importing the package, and its --help, cost beside torch."""
    quantities = [
        Quantity(f"{one} / {other}", lambda s, a=one, b=other: s[a] / s[b], limit=limit)
        for (one, other), limit in LIMITS.items()
    ]
    arms = {name: partial(seconds_of, arguments) for name, arguments in ARMS.items()}
    yield Rounds(arms, quantities)


def seconds_of(arguments: Sequence[str]) -> float:
    """Return the CPU seconds of a new process of Python."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or the package is compiled each time
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
