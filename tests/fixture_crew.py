"""Tasks for several processes: one that goes on until it is stopped, and one that fails."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import selective_backprop as sb
from selective_backprop.lab.stopping import sigterm_leaves

MOST = 600.0  # seconds that a task takes at most


@dataclass(frozen=True)
class Endless:
    """Tell of step after step; keep a file when stopped, as a run keeps a checkpoint."""

    folder: Path
    words: str = "endless"

    def carry_out(self, tell: Callable[[Any], None]) -> None:
        latest = time.monotonic() + MOST
        try:
            with sigterm_leaves():
                while time.monotonic() < latest:
                    (self.folder / "begun").touch()
                    tell("a step")
                    time.sleep(0.01)
        finally:
            (self.folder / "kept").touch()


@dataclass(frozen=True)
class Failing:
    """Fail once the other has begun."""

    folder: Path
    words: str = "failing"

    def carry_out(self, tell: Callable[[Any], None]) -> None:
        latest = time.monotonic() + MOST
        while not (self.folder / "begun").exists() and time.monotonic() < latest:
            time.sleep(0.01)
        raise sb.RecordError("it failed")
