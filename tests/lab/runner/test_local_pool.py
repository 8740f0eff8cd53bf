"""Several processes that carry out jobs, where one of them cannot go on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fixture_jobs import Endless, Failing, Killed, wait_for

import selective_backprop as sb
from selective_backprop_lab.training import process
from selective_backprop_lab.training.process import run_local

FIXTURES = Path(__file__).parents[2] / "fixtures"
ENDLESS = """
from pathlib import Path
from fixture_jobs import Endless
from selective_backprop_lab.training.process import run_local

if __name__ == "__main__":
    work = [Endless(Path.cwd(), tells=False), Endless(Path.cwd(), tells=False)]
    run_local(work, jobs=2, threads=1, watch=lambda job, news: None)
"""


def run(*work):
    run_local(work, jobs=2, threads=1, watch=lambda job, news: None)


@pytest.mark.usefixtures("signals_as_usual")
def test_where_one_fails_the_others_keep_what_they_have_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "PATIENCE", 10.0)  # seconds until a process is killed
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # What a user's model raises is told with its traceback.
    with pytest.raises(sb.RecordError, match=r"(?s)^failing: Traceback.*of mine"):
        run(Endless(tmp_path), Failing(tmp_path, ZeroDivisionError("of mine")))
    assert (tmp_path / "kept").exists()


def test_a_process_that_is_killed_is_told_of_and_the_others_keep_what_they_have_begun(tmp_path):
    with pytest.raises(sb.RecordError, match="killed while these ran: endless; of no memory"):
        run(Endless(tmp_path), Killed(tmp_path))
    assert (tmp_path / "kept").exists()


def test_processes_whose_parent_is_gone_keep_what_they_have_begun(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    paths = os.pathsep.join([str(FIXTURES), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "endless.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.DEVNULL,
    )
    wait_for(tmp_path / "begun")
    parent.kill()
    parent.wait()
    wait_for(tmp_path / "kept")
    assert (tmp_path / "kept").exists()
