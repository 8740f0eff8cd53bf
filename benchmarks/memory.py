"""Large data sets of which every loss is known, and how much memory this process takes.

Linux alone tells the memory.
"""

import resource
from pathlib import Path

import torch

import selective_backprop as sb

AT_ONCE = 10**6  # losses that are recorded together


class Indices:
    """A data set of so many examples, none of which is ever read."""

    def __init__(self, examples: int) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return self._examples

    def __getitem__(self, index: int) -> int:
        return index


def record_all(loader: sb.SelectiveLoader, examples: int) -> None:
    """Let a loader know a loss of every example."""
    losses = torch.rand(AT_ONCE, generator=torch.Generator().manual_seed(0))
    for start in range(0, examples, AT_ONCE):
        rows = torch.arange(start, min(start + AT_ONCE, examples))
        loader.record(sb.Selection(rows, torch.ones(len(rows))), losses[: len(rows)])


def resident() -> int:
    """Return the bytes that are in use."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * resource.getpagesize()


def forget_peak() -> None:
    """Let the peak be counted anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int:
    """Return the most bytes that were in use since then."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
