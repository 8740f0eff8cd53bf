"""Which records measured code that has changed since."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.case import find_cases

ROOT = Path(__file__).parents[1]
FOLDERS = ("records/bench", "records/audit")


def states_of(records: Sequence[str] = (), root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each record: whether it is stale, and which files have changed."""
    paths = [root / name for name in records] or [
        path for folder in FOLDERS for path in sorted((root / folder).glob("*.json"))
    ]
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        state = state_of(record["code_version"], measured_by(record), root)
        yield f"{path.relative_to(root)}: {state}"


def measured_by(record: dict[str, Any]) -> list[str]:
    """Return the files and folders that the cases of a record measure."""
    cases = find_cases(list(record.get("cases", ())))
    return sorted({file for case in cases for file in case.measures})


def state_of(version: str, files: Sequence[str], root: Path = ROOT) -> str:
    """Say whether files have changed since the version of the code that a record names."""
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
    """Return what git prints; None if it fails."""
    done = subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None
