"""A run that is killed at any moment, and run again, ends as if nothing had happened."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from fixture_lab import few_digits, fixture_plan, same_runs, train_session, untimed

from selective_backprop_lab.records.schema import read_runs

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork a process"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of forking beside threads
]


def start_and_kill(plan: Any, folder: Path, nth: int) -> None:
    """Run in a process of its own, and kill that in the midst of its n-th write."""
    child = os.fork()
    if child == 0:
        left = iter(range(nth - 1, -1, -1))
        os.fsync = lambda _: next(left) or os.kill(os.getpid(), signal.SIGKILL)
        try:
            train_session(plan, few_digits(), folder, every=1e-6)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_killed_at_any_moment_a_run_goes_on_to_the_same_end(tmp_path):
    plan = fixture_plan("stale-sb", epochs=8, evaluations=4)
    whole = train_session(plan, few_digits(), tmp_path / "whole", every=float("inf"))
    moments = random.Random(0)
    for _ in range(3):
        start_and_kill(plan, tmp_path / "killed", moments.randint(9, 19))
    resumed = train_session(plan, few_digits(), tmp_path / "killed", every=1e-6)
    assert same_runs(resumed, whole)
    (record,), (expected,) = read_runs(tmp_path / "killed"), read_runs(tmp_path / "whole")
    assert record.finished
    assert repr(untimed(record.points)) == repr(untimed(expected.points))
    assert [len(each.end["machines"]) for each in (record, expected)] == [4, 1]
    left = {path.suffix for path in (tmp_path / "killed").iterdir()}
    assert left <= {".jsonl", ".new"}  # what was half written stays
