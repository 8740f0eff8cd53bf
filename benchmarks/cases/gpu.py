"""Tests and measurements on a GPU, in one go and within ten minutes: `scripts/gpu`.

    scripts/gpu --out records/gpu.json                      on the GPU that is there
    scripts/gpu --set parts=tests                           the tests alone
    scripts/gpu --set device=cpu look=5 --out x.json        the same in small, to see that it works

The tests that are marked `cuda` come first, then `bench` in each precision with each model. Tests
of the library need torch, NumPy and pytest, all else what the extra `lab` brings. Every part is a
process with a limit of its own, and one that fails or takes too long leaves the others alone.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.case import Once, Row, case, value

ROOT = Path(__file__).parents[2]
TESTING = 0.5  # of the time that is left is what tests may take at least: some compile
LENIENCE = 1.4  # times its share of the time that is left is what a part may take
LINES = 200  # of a part's output that are kept: more than there are tests
TOO_LONG = 124  # the exit status of what was ended, as `timeout` has it


@dataclass(frozen=True)
class Part:
    """Something that is run on its own; `record` is what it writes, or None."""

    name: str
    command: Sequence[str]
    record: Path | None = None


@case("src")
def gpu(
    *, device: str = "", parts: tuple[str, ...] = ("",), look: float = 30.0, limit: float = 560.0
) -> Iterator[Once]:
    """Tests and measurements on a GPU, of the parts whose names begin so, within a limit."""
    here = device or ("cuda" if torch.cuda.is_available() else "cpu")
    end = time.monotonic() + limit
    with tempfile.TemporaryDirectory() as folder:
        every = [tests(), *benches(here, look, Path(folder))]
        chosen = [part for part in every if part.name.startswith(parts)]
        if not chosen:
            raise SystemExit(f"--set parts: they are {', '.join(part.name for part in every)}")
        for number, part in enumerate(chosen):
            left = end - time.monotonic()
            share = max(LENIENCE / (len(chosen) - number), 0.0 if part.record else TESTING)
            most = min(left, share * left)
            yield Once({"part": part.name}, lambda part=part, most=most: run(part, limit=most))


def tests() -> Part:
    """Return all tests that are marked `cuda`, without what the others need besides."""
    options = ["-m", "cuda", "-v", "--no-header", "--tb=short", "--continue-on-collection-errors"]
    # With other versions of packages than the project's, a warning is no failure.
    options += ["-p", "no:fixture_checks", "-p", "no:cacheprovider", "-W", "default"]
    files = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "pytest.mark.cuda" in path.read_text(encoding="utf-8")
    ]
    return Part("tests", [sys.executable, "-m", "pytest", *options, *files])


def benches(device: str, look: float, folder: Path) -> Iterator[Part]:
    """Yield the case `bench` of each model in each precision, those at stake first."""
    models, data, batch = ("resnet18", "vit_small"), "3x32x32", 256
    if device == "cpu":
        models, data, batch = ("tiny_cnn", "vit_narrow"), "3x16x16", 4
    for precision in ("bf16", "fp32"):
        for model in models:
            record = folder / f"{model}-{precision}.json"
            command = [sys.executable, "-m", "benchmarks", "bench", f"--out={record}", "--set"]
            command += [f"model={model}", f"precision={precision}", f"data={data}"]
            command += [f"batch_size={batch}", f"device={device}", f"look={look:g}"]
            yield Part(f"{model} in {precision}", command, record)


def run(part: Part, *, limit: float) -> list[Row]:
    """Run a part, end it with all that it started when its time is up, and return its rows."""
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        # A file, since a pipe that a process of the compiler's has inherited never ends.
        process = subprocess.Popen(
            part.command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=max(0.0, limit))
        except subprocess.TimeoutExpired:
            status = TOO_LONG
        with suppress(ProcessLookupError):  # nothing that it started may be left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        printed.seek(0)
        lines = printed.read().splitlines()[-LINES:]
    rows: list[Row] = []
    if part.record is not None and part.record.exists():
        rows = json.loads(part.record.read_text(encoding="utf-8"))["rows"]
        status = 0  # what it measured may be over a limit, which its rows say
    if status:
        print(*lines, sep="\n")
    seconds = round(time.monotonic() - begun, 1)
    ended = value("exit status", abs(status), "0 is well", 0) | {"seconds": seconds}
    said = {"command": ["python", *part.command[1:]], "output": lines}
    return [ended | said, *rows]
