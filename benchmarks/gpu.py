"""Test and measure on a GPU in one go, within ten minutes, and write records.

    scripts/gpu --out records/gpu                   on the GPU that is there
    scripts/gpu --only tests --out records/gpu      the tests alone
    scripts/gpu --device cpu --seconds 5 --out x    the same in small, to see that it works

The tests that are marked `cuda` come first, then `bench` in each precision with each model. Tests
of the library need torch, NumPy and pytest, all else what the extra `lab` brings. Every part has a
limit of its own, and one that fails or takes too long leaves the others alone. The folder `--out`
gets gpu.json, which says what came of each part and is written anew after every one, and beside it
a file for each measurement.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from recording import write_record

from selective_backprop_lab.records.schema import utc_now

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TESTING = 0.5  # of the time that is left is what tests may take at least: some compile
LENIENCE = 1.4  # times its share of the time that is left is what a part may take
LINES = 200  # of a part's output that are kept: more than there are tests
SCORING, EPOCH = 0.3, 0.4  # the most that scoring and a selective epoch may cost


@dataclass(frozen=True)
class Part:
    """Something that is run on its own.

    Attributes:
        name: what it is.
        command: its arguments, the interpreter first.
        record: what it writes, or None.
    """

    name: str
    command: Sequence[str]
    record: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a part.

    Attributes:
        name: of the part.
        command: as it was run.
        status: its exit status; None where it took too long and was ended.
        seconds: that it took.
        output: the last lines that it printed.
    """

    name: str
    command: str
    status: int | None
    seconds: float
    output: list[str]


def main() -> int:
    """Run every part, and write what came of it; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=here, help="where to run")
    parser.add_argument("--seconds", type=float, default=30.0, help="of rounds in each bench")
    parser.add_argument("--limit", type=float, default=560.0, help="seconds that all may take")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder for records")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        metavar="NAME",
        help="run parts whose names begin so, such as tests; gpu.json is of these alone",
    )
    options = parser.parse_args()
    out: Path = options.out.resolve()
    every = [tests(), *benches(options.device, options.seconds, out)]
    parts = [part for part in every if part.name.startswith(tuple(options.only))]
    if not parts:
        parser.error(f"--only: the parts are {', '.join(part.name for part in every)}")
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.limit
    outcomes: list[Outcome] = []
    for number, part in enumerate(parts):
        left = end - time.monotonic()
        share = max(LENIENCE / (len(parts) - number), TESTING if part.record is None else 0.0)
        outcomes.append(run(part, limit=min(left, share * left)))
        found = outcomes[-1]
        print(f"{found.name}: {said(found)}, {found.seconds:.0f} s", flush=True)
        write(out / "gpu.json", outcomes, parts)
    for found in outcomes:
        if found.status != 0:
            print(f"\n{found.name}: {said(found)}", *found.output, sep="\n")
    for verdict in json.loads((out / "gpu.json").read_text(encoding="utf-8"))["demands"]:
        print(*verdict.values(), sep="  ")
    return int(any(found.status != 0 for found in outcomes))


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


def benches(device: str, seconds: float, out: Path) -> Iterator[Part]:
    """Yield `bench` of each model in each precision, those at stake first."""
    models, data, batch = ("resnet18", "vit_small"), "3x32x32", 256
    if device == "cpu":
        models, data, batch = ("tiny_cnn", "vit_narrow"), "3x16x16", 4
    for precision in ("bf16", "fp32"):
        for model in models:
            record = out / f"{model}-{precision}.json"
            command = [sys.executable, str(HERE / "gpu_part.py"), f"--model={model}"]
            command += [f"--precision={precision}", f"--data={data}", f"--batch-size={batch}"]
            command += [f"--device={device}", f"--seconds={seconds:g}", f"--json={record}"]
            yield Part(f"{model} in {precision}", command, record)


def run(part: Part, *, limit: float) -> Outcome:
    """Run a part, and end it with all that it started when its time is up.

    Args:
        part: what to run.
        limit: seconds.
    """
    begun = time.monotonic()
    if part.record is not None:
        part.record.unlink(missing_ok=True)  # of an earlier run
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
        status: int | None
        try:
            status = process.wait(timeout=max(0.0, limit))
        except subprocess.TimeoutExpired:
            status = None
        with suppress(ProcessLookupError):  # nothing that it started may be left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        printed.seek(0)
        lines = printed.read().splitlines()[-LINES:]
    seconds = round(time.monotonic() - begun, 1)
    return Outcome(part.name, shlex.join(["python", *part.command[1:]]), status, seconds, lines)


def said(found: Outcome) -> str:
    """Say in a word or two how a part ended."""
    if found.status is None:
        return "took too long"
    return "done" if found.status == 0 else f"failed with status {found.status}"


def write(path: Path, outcomes: Sequence[Outcome], parts: Sequence[Part]) -> None:
    """Write what came of the parts so far, and how the measured ones stand to the demands."""
    measured = [part.record for part in parts if part.record is not None and part.record.exists()]
    write_record(
        path,
        written=utc_now(),
        demands=[demand for each in measured for demand in demands(each)],
        parts=[asdict(found) for found in outcomes],
    )


def demands(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what a measurement says of each demand on scoring and on a selective epoch."""
    found = json.loads(path.read_text(encoding="utf-8"))
    config = found["config"]
    subject = f"{config['model']} in {config['precision']}"
    name = "forward" if config["precision"] == "bf16" else "bf16"
    if (scorer := found["scorers"].get(name)) is not None:
        claim = "scoring in bf16, of an fp32 forward"
        yield {
            "of": subject,
            "claim": claim,
            "limit": SCORING,
            **judged(scorer["of_full"], SCORING),
        }
    if config["precision"] != "bf16":
        return
    for name, strategy in found["strategies"].items():
        if name.endswith(("-sb", "selective-backprop")):
            claim = f"an epoch of {name}, of traditional's"
            yield {
                "of": subject,
                "claim": claim,
                "limit": EPOCH,
                **judged(strategy["relative"], EPOCH),
            }


def judged(ratio: dict[str, float], limit: float) -> dict[str, Any]:
    """Return a ratio with its interval, and whether all of that is within a limit."""
    verdict = "pass" if ratio["high"] <= limit else "fail" if ratio["low"] > limit else "unresolved"
    return {**{end: round(ratio[end], 4) for end in ("median", "low", "high")}, "verdict": verdict}


if __name__ == "__main__":
    sys.exit(main())
