"""What is made of records, for a person: a table on the terminal, files, and a page."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

import selective_backprop as sb
from selective_backprop.lab.analysis.grouping import gather
from selective_backprop.lab.analysis.loading import Survey
from selective_backprop.lab.analysis.statistics import Axis
from selective_backprop.lab.analysis.summary import comparison_table, to_markdown
from selective_backprop.lab.cli.command_line import command_line
from selective_backprop.lab.data.folders import make_folder, writing_out
from selective_backprop.lab.records.files import forced_to_disk
from selective_backprop.lab.records.provenance import code_version, hardware, versions
from selective_backprop.lab.records.schema import utc_now
from selective_backprop.lab.report.figures import draw_comparison
from selective_backprop.lab.report.report import write_report


def show(console: Console, found: Survey, out: Path) -> None:
    """Print the table of some runs, and draw the rest: a page alone, or all into a folder."""
    on_cpu = all(run.header.device == "cpu" for run in found.runs)
    axis: Axis = "cpu_seconds" if on_cpu else "seconds"  # a CPU does other work too
    alone = out.suffix.lower() in {".html", ".htm"}
    page = out if alone else out / "report.html"
    comparison = gather(found.runs)
    make_folder(page.parent)
    console.print(comparison_table(comparison, axis))
    with writing_out(out):
        if not alone:
            (out / "table.md").write_text(to_markdown(comparison, axis), encoding="utf-8")
            draw_comparison(comparison, out / "comparison.png", axis=axis)
        write_report(
            comparison, page, histories=found.histories, problems=found.problems, axis=axis
        )
    beside = "." if alone else "; table.md and comparison.png lie beside it."
    console.print(f"Open {page}{beside}", soft_wrap=True)


def check_record(path: Path | None) -> None:
    """Refuse a file for `--json` that could not be written once all is measured."""
    if path is None:
        return
    if path.is_dir():
        raise sb.ConfigurationError(f"--json {path}: is a folder; name a file")
    make_folder(path.parent, "--json")


def save_record(path: Path | None, found: Mapping[str, Any]) -> None:
    """Write what was measured as JSON, with the command, the code and the machine."""
    if path is None:
        return
    record = {
        "command": command_line(),
        "written": utc_now(),
        "code_version": code_version(),
        "versions": versions(),
        "hardware": hardware(),
        **_finite(found),
    }
    with writing_out(path, "--json"):
        fresh = path.with_name(path.name + ".new")
        with forced_to_disk(fresh) as file:
            file.write(f"{json.dumps(record, indent=1, allow_nan=False)}\n".encode())
        fresh.replace(path)


def folder_of(place: Path) -> Path:
    """Return the folder that a place is, or that a record lies in."""
    return place if place.is_dir() else place.parent


def _finite(value: Any) -> Any:
    """Return a value for JSON, in which null stands for what is not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
