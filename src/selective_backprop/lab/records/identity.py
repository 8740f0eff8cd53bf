"""What a run is known by: an explicit, versioned mapping of what its user chose.

Whatever equals the default is left out, so that an option that is added later leaves the records
of before as they are. Threads, device and versions are provenance: they do not tell runs apart.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from selective_backprop.lab.records.lines import encode

VERSION = 1
"""Counts the changes of defaults: a run of other defaults is another run."""
SUFFIX = ".jsonl"


def differing(described: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a description is not as usual; of a mapping in it, what differs there."""
    found = {}
    for name, value in described.items():
        if isinstance(value, Mapping):
            value = differing(value, usual.get(name, {}))
            if value:
                found[name] = value
        elif name not in usual or usual[name] != value:
            found[name] = value
    return found


def record_name(identity: Mapping[str, Any]) -> str:
    """Return the name of the file that a run of this identity is recorded in."""
    key = hashlib.sha256(encode(identity, sort=True)).hexdigest()[:8]
    strategy = re.sub(r"[^A-Za-z0-9._-]+", "_", str(identity["strategy"]["name"]))[:60]
    return f"{strategy}-seed{identity['seed']}-{key}{SUFFIX}"
