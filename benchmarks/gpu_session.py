"""Test and measure on a GPU, within so many seconds altogether, with the packages that are there.

    OUT=folder scripts/gpu                            ten minutes
    scripts/gpu --only papers --root data             the parts whose names hold that word
    scripts/gpu --device cpu --seconds 60             a rehearsal, which only collects the tests

OUT, by default runs/gpu, takes what comes back: a log of each part, and its record. Parts run one
after the other. Each may take its share of the seconds that are left, and is then ended. It ends
with 1 if a part failed or is unfinished. Tests of the library need torch, NumPy and pytest; all
else needs what the extra `lab` brings.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
PYTEST = (
    *("-m", "pytest", "-m", "cuda", "-v", "--no-header", "--tb=short", "-W", "default"),
    # With other versions of packages than the project's, a warning is no failure.
    *("--continue-on-collection-errors", "-p", "no:fixture_checks", "-p", "no:cacheprovider"),
)
GRACE = 30.0  # most seconds that trainings get for their checkpoints
LEFT_OUT = "left out, no --root"
FINE = "done", "passed", "collected", LEFT_OUT


@dataclass(frozen=True)
class Part:
    """A command of this Python, and its share of the seconds among the parts that are left."""

    name: str
    weight: float
    command: Callable[[float], list[str]]  # arguments, given the most seconds that it may take


def parts_of(device: str, root: Path | None, out: Path) -> list[Part]:
    real, stream = device != "cpu", "tests/experimental/test_stream_backend.py"
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    files = [str(path) for path in paths if "pytest.mark.cuda" in path.read_text("utf-8")]

    def bench(name: str, weight: float, *settings: str, few: bool = False) -> Part:
        def command(seconds: float) -> list[str]:
            cases = ["probe.steps", "probe.lab"] if name == "probe" else [name]
            rounds = ["--rounds", "3"] if few or not real else []
            look = [f"look={seconds / 10:.1f}"] if name == "bench.bench" else []
            record = ["--seconds", f"{seconds * 0.7:.1f}", *rounds, "--out", f"{out / name}.json"]
            changed = ["--set", f"device={device}", *look, *(() if real else settings)]
            return ["-m", "benchmarks", *cases, *record, *changed]

        return Part(name, weight, command)

    only = [] if real else ["--collect-only", "-qq"]
    found = [  # the settings are those of a rehearsal
        bench("probe", 12, "net=tiny_cnn", "size=32", "count=2", few=True),
        Part("tests", 22, lambda _: [*PYTEST, *only, *files]),
        *([Part("sanitizer", 5, lambda _: [*PYTEST, stream])] if real else []),
        bench("bench.bench", 11, "models=tiny_cnn", "precisions=fp32", "data=1x8x8/3"),
        bench("gpu.small", 5),
        bench("gpu.rollouts", 11, "width=32", "layers=1", "length=16", "words=64"),
    ]
    what = ["-m", "reproductions", "all" if real else "list", "--scale", "gpu"]
    papers = [*what, "--root", str(root), "--out", str(out / "papers")]
    found.append(Part("papers", 20 if root else 0, lambda _: papers if root else []))
    # A rehearsal spends its time on starting programs.
    return found if real else [replace(part, weight=float(part.weight > 0)) for part in found]


def run(part: Part, seconds: float, log: Path, grace: float) -> str:
    """Run a part for at most so many seconds, show the end of its log, and return its verdict."""
    command = part.command(seconds)
    if not command or seconds < 1:
        return "unfinished: no time was left" if command else LEFT_OUT
    own = {"TORCH_CUDA_SANITIZER": "1"} if part.name == "sanitizer" else {}
    with log.open("wb") as file:
        where = {"cwd": ROOT, "env": os.environ | own, "start_new_session": True}
        out = {"stdout": file, "stderr": subprocess.STDOUT}
        process = subprocess.Popen([sys.executable, *command], **where, **out)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end(process, grace)
    lines = log.read_text("utf-8", "replace").splitlines()
    print(*lines[-12:], sep="\n")
    return f"unfinished, ended after {seconds:.0f} s" if status is None else verdict(status, lines)


def end(process: "subprocess.Popen[bytes]", grace: float) -> None:
    """End a part and all that it has begun: it may leave checkpoints before it is killed."""
    process.terminate()  # alone: a training ends its own processes, which a second signal kills
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def verdict(status: int, lines: list[str]) -> str:
    """Say what came of a part: done, passed, collected, skipped, over a limit, or failed."""
    text = "\n".join(lines)
    counts = re.findall(
        r"[\d/]+ (?:passed|skipped|failed|errors?|tests collected)", (lines or [""])[-1]
    )
    if status == 1 and "verdict fail" in text and "Traceback" not in text:
        return "over a limit"
    if status:
        return ", ".join([f"failed with exit status {status}", *counts])
    words = [word for word in ("passed", "collected", "skipped") if word in " ".join(counts)]
    return ": ".join([*words[:1], ", ".join(counts)]) if counts else "done"


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    real, out = options.device == "cuda", Path(os.environ.get("OUT", ROOT / "runs/gpu")).resolve()
    if real and not torch.cuda.is_available():
        print("no CUDA device: --device cpu rehearses")
        return 2
    begun, grace = time.monotonic(), min(GRACE, options.seconds / 10)
    print(torch.cuda.get_device_name() if real else "a rehearsal on the CPU", torch.__version__)
    known = parts_of(options.device, options.root and options.root.resolve(), out)
    parts = [part for part in known if options.only in part.name]
    if not parts:
        print(f"--only {options.only}: there are {', '.join(part.name for part in known)}")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # in good order: the part is ended, too
    rows, fine = [], True
    for number, part in enumerate(parts):
        since = time.monotonic()
        left = begun + options.seconds - grace - since
        share = left * part.weight / (sum(each.weight for each in parts[number:]) or 1)
        print(f"== {part.name}, at most {share:.0f} s", flush=True)
        found = run(part, share, out / f"{part.name}.log", grace)
        fine = fine and found.startswith(FINE if real else (*FINE, "over a limit"))
        rows.append(f"{part.name:16} {time.monotonic() - since:7.0f} {found}")
        print(rows[-1], flush=True)
    print(f"\n{'part':16} seconds verdict", *rows, sep="\n")
    return int(not fine)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "scripts/gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--root", type=Path, help="the folder with data sets; the papers need it")
    parser.add_argument("--only", default="", metavar="WORD", help="of the names of parts")
    parser.add_argument("--seconds", type=float, default=600.0, help="of all parts together")
    options = parser.parse_args(arguments)
    if options.root and not options.root.is_dir():  # said now, not when the papers' turn comes
        parser.error(f"--root {options.root}: no such folder")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
