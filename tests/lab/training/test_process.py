"""Asked to leave, a command keeps what it has done, says so, and goes on from there later."""

import os
import signal
import subprocess
import sys

import pytest
from fixture_command import run_command
from fixture_lab import at_update, untimed

from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.training.process import asked_to_stop

pytestmark = pytest.mark.usefixtures("signals_as_usual")

SMALL = "--limit 256 --epochs 2 --evaluations 2 --rate 1/2 --out out"
TRAIN = f"train {SMALL} --strategy selective-backprop"
COMPARE = f"compare {SMALL} --seeds 1 --no-shorter --strategies traditional,low-k"


def curves(folder):
    return {run.path.name: untimed(list(run.points)) for run in read_runs(folder)}


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        (signal.SIGTERM, 143, "ended by SIGTERM; what was recorded is kept"),
        (signal.SIGINT, 130, "interrupted; what was recorded is kept"),
    ],
)
def test_train_ends_with_a_checkpoint_and_goes_on(tmp_path, monkeypatch, number, status, words):
    (tmp_path / "whole").mkdir()
    run_command(TRAIN, tmp_path / "whole")
    at_update(monkeypatch, 3, lambda: signal.raise_signal(number))
    outcome = run_command(TRAIN, tmp_path)
    assert outcome.status == status
    assert words in outcome.err
    assert len(list((tmp_path / "out").glob("*.checkpoint"))) == 1
    outcome = run_command(f"{TRAIN} --resume", tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    assert curves(tmp_path / "out") == curves(tmp_path / "whole" / "out")
    (run,) = read_runs(tmp_path / "out")
    assert len(run.end["machines"]) == 2
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".jsonl", ".npz"}


def test_compare_keeps_the_runs_at_rest_too_and_goes_on_by_itself(tmp_path, monkeypatch, undrawn):
    # the first epoch of both is over, 4 updates each, and the second has begun
    at_update(monkeypatch, 9, lambda: signal.raise_signal(signal.SIGTERM))
    assert run_command(COMPARE, tmp_path).status == 143
    assert len(list((tmp_path / "out").glob("*.checkpoint"))) == 2
    outcome = run_command(COMPARE, tmp_path)
    assert outcome.status == 0
    assert outcome.out.count("seed 0: error") == 2
    assert [len(run.end["machines"]) for run in read_runs(tmp_path / "out")] == [2, 2]


def test_a_second_ctrl_c_leaves_at_once():
    with asked_to_stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_for_which_a_signal_is_ignored_goes_on(tmp_path, monkeypatch, number):
    signal.signal(number, signal.SIG_IGN)
    at_update(monkeypatch, 3, lambda: signal.raise_signal(number))
    outcome = run_command(TRAIN, tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    assert signal.getsignal(number) is signal.SIG_IGN


def test_a_library_that_is_used_later_takes_no_more_threads_either():
    code = """if True:
        from threadpoolctl import threadpool_info
        from selective_backprop_lab.training.process import limit_threads
        limit_threads(1)
        import scipy.linalg, sklearn.datasets, sklearn.gaussian_process, sklearn.linear_model
        for each in threadpool_info():
            print(each["filepath"], each["num_threads"])
    """
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    libraries = dict(line.rsplit(maxsplit=1) for line in printed.splitlines())
    assert len(libraries) > 1
    assert set(libraries.values()) == {"1"}, printed
