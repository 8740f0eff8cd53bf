"""Which code ran, with which versions, and on which hardware."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch

import selective_backprop as sb
from selective_backprop_lab.records.files import replacing

_PACKAGE = Path(sb.__file__).resolve().parent


def provenance() -> dict[str, Any]:
    """Return what every record of a measurement holds: code, versions and hardware."""
    return {"code_version": code_version(), "versions": versions(), "hardware": hardware()}


def write_record(path: Path, command: str, found: Mapping[str, Any]) -> None:
    """Write a record as JSON: the command, code and machine, and the findings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"command": command, **provenance(), **found}
    with replacing(path) as file:
        file.write(f"{json.dumps(record, indent=1, default=str)}\n".encode())


def hardware() -> dict[str, Any]:
    """Describe what decides speed and rounding; what cannot be found is "unknown" or None."""
    # A container or `taskset` may allow fewer cores than the machine has.
    allowed = getattr(os, "sched_getaffinity", None)
    return {
        "cpu": _cpu_model(),
        "capability": torch.backends.cpu.get_cpu_capability(),  # instructions, such as "AVX2"
        "cores": len(allowed(0)) if allowed else (os.cpu_count() or 1),
        "threads": torch.get_num_threads(),  # number that torch uses for one operation
        "memory_gib": _memory_gib(),
        "gpu": _gpu_model(),
        "system": platform.system() or "unknown",
    }


def machine_of(hardware: Mapping[str, Any]) -> str:
    """Describe a machine in words."""

    def counted(noun: str) -> str | None:
        number = hardware.get(f"{noun}s")
        return f"{number} {noun}{'' if number == 1 else 's'}" if number else None

    memory = f"{hardware['memory_gib']:.0f} GiB" if hardware.get("memory_gib") else None
    names = [hardware.get(name) for name in ("gpu", "cpu", "capability")]
    parts = [*names, counted("core"), counted("thread"), memory]
    return ", ".join(str(part) for part in parts if part) or "hardware unknown"


def versions() -> dict[str, str]:
    """Return the versions that affect results: python, torch, numpy, selective_backprop."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(numpy.__version__),
        "selective_backprop": sb.__version__,
    }


@cache
def code_version() -> str:
    """Say which source code runs: `git 1a2b3c4d5e6f`, perhaps with ` + uncommitted changes`."""
    tracked = _ask("git", "ls-files", "--error-unmatch", "__init__.py")
    commit = _ask("git", "rev-parse", "--verify", "HEAD") if tracked else None
    if not commit:
        return sb.__version__
    changes = _ask("git", "status", "--porcelain", "--", ".")
    # If the status is unknown, the tree may not be clean.
    return f"git {commit[:12]}" + ("" if changes == "" else " + uncommitted changes")


def _ask(*command: str) -> str | None:
    # Inside a git hook, GIT_DIR may point at another repository.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            command,
            cwd=_PACKAGE,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_model() -> str:
    if sys.platform == "darwin":
        return _ask("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    try:
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        described = ""
    first = (line.partition(":") for line in described.partition("\n\n")[0].splitlines())
    found = {name.strip(): " ".join(value.split()) for name, _, value in first}
    if not found.get("model name"):
        # Kernels for ARM give no model name, so the architecture has to do.
        return platform.processor() or platform.machine() or "unknown"
    # On virtual machines, processors of several generations may share a name.
    known = {"family": found.get("cpu family"), "model": found.get("model")}
    numbers = ", ".join(f"{name} {number}" for name, number in known.items() if number)
    return f"{found['model name']} ({numbers})" if numbers else found["model name"]


def _memory_gib() -> float | None:
    try:
        bytes_ = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return round(bytes_ / 2**30, 1)


def _gpu_model() -> str | None:
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        return torch.cuda.get_device_name(0) + (f" (one of {count})" if count > 1 else "")
    if torch.backends.mps.is_available():
        return "Apple GPU"
    return None
