"""Records of benchmarks: one JSON file each, its measurements one table for pandas to ask.

    from selective_backprop_lab.records.measurements import measurements

    found = measurements("records/bench")
    found[found.verdict == "fail"][["case", "quantity", "median", "limit"]]

A record says command, code, versions and hardware, the settings of its cases, and in `rows` what
was measured.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

COLUMNS: Mapping[str, str] = {
    "record": "path of the file",
    "case": "what was run: MODULE.FUNCTION of benchmarks/cases",
    "quantity": "what was measured; a case's other columns say of what",
    "unit": "of median, low and high",
    "median": "over the rounds; of what was taken once, the value",
    "low": "lower end of the median's 95 % interval",
    "high": "its upper end",
    "rounds": "in how many rounds it was taken",
    "limit": "the most that it may be; NaN where nothing is asked for",
    "verdict": "pass or fail where all of the interval is on one side of the limit, or unresolved",
    "code": "version of the code that ran",
    "command": "what was typed",
}


def measurements(*places: str | Path) -> pd.DataFrame:
    """Return the rows of some records, or of all in some folders: `COLUMNS`, then the cases' own.

    Records that were written before records had rows have none.
    """
    rows: list[dict[str, Any]] = []
    for place in map(Path, places):
        for path in sorted(place.glob("*.json")) if place.is_dir() else [place]:
            record = json.loads(path.read_text(encoding="utf-8"))
            own = {"record": str(path), "code": record["code_version"]}
            own["command"] = record["command"]
            rows += [own | row for row in record.get("rows", [])]
    columns = dict.fromkeys([*COLUMNS, *(key for row in rows for key in row)])
    return pd.DataFrame(rows, columns=list(columns))
