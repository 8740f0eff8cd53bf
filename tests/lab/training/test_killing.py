"""A run that is killed at any moment, and run again, ends as if nothing had happened."""

import os
import random
import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fixture_lab import few_digits, fixture_plan, same_runs, train_session, untimed

from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.training.run_config import Probe

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of forking beside threads
]


@dataclass(frozen=True)
class Telling(Probe):
    """Writes a byte for each update that a process begins."""

    line: int = field(repr=False)

    def select(self, scene: Any, indices: Any, memory: Any) -> None:
        os.write(self.line, b".")

    def look(self, scene: Any, progress: float, memory: Any) -> Mapping[str, Any] | None:
        return {"seen": progress}


def start_and_kill(plan: Any, folder: Path, updates: int) -> None:
    """Run in a process of its own, and kill that when so many updates have begun."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        try:
            told = replace(plan, probes=(Telling(writes),))
            train_session(told, few_digits(), folder, every=1e-6)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writes)
    for _ in range(updates):
        os.read(reads, 1)
    os.kill(child, signal.SIGKILL)
    os.close(reads)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_killed_at_any_moment_a_run_goes_on_to_the_same_end(tmp_path):
    plan = fixture_plan("stale-sb", epochs=8, evaluations=4)
    line = os.open(os.devnull, os.O_WRONLY)
    told = replace(plan, probes=(Telling(line),))
    whole = train_session(told, few_digits(), tmp_path / "whole", every=float("inf"))
    moments = random.Random(0)
    for _ in range(3):
        start_and_kill(plan, tmp_path / "killed", moments.randint(2, 6))
    resumed = train_session(told, few_digits(), tmp_path / "killed", every=1e-6)
    os.close(line)
    assert same_runs(resumed, whole)
    (record,), (expected,) = read_runs(tmp_path / "killed"), read_runs(tmp_path / "whole")
    assert record.finished
    assert repr(untimed(record.points)) == repr(untimed(expected.points))
    assert record.observations == expected.observations
    assert [len(each.end["machines"]) for each in (record, expected)] == [4, 1]
    assert [path.suffix for path in (tmp_path / "killed").iterdir()] == [".jsonl"]
