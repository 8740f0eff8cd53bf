"""How benchmarks write down what they found."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.provenance import provenance


def write_record(path: Path, /, **found: Any) -> None:
    """Write a record as JSON: the command, what ran on what, and what was found."""
    script, *options = sys.argv
    command = shlex.join([f"benchmarks/{Path(script).name}", *options])
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        record = {"command": command, **provenance(), **found}
        file.write((json.dumps(record, indent=1) + "\n").encode())
