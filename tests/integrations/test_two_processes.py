"""Two processes under Trainers and under Accelerate: equal steps, equal weights, resumed."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(task, folder):
    """What each of two processes said, by name."""
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests" / "fixtures", HERE))),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "ACCELERATE_USE_CPU": "true",
        "HOME": str(folder),
    }
    ended = subprocess.run(
        [sys.executable, *start, str(HERE / "ranks_script.py"), task, str(folder / "saved")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr[-6000:]
    said = {}
    for name, rank, words in re.findall(r"^(\w+) (\d): (.*)$", ended.stdout, re.MULTILINE):
        said.setdefault(name, {})[rank] = words.split()
    return said


@pytest.mark.slow
def test_the_trainer_s_processes_take_equal_steps_and_go_on_from_a_checkpoint(tmp_path):
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    said = run("trainer", tmp_path)
    assert said["trainer"]["0"] == said["trainer"]["1"]
    steps, candidates, _, same = said["trainer"]["0"]
    # of 32 examples a process: 8 batches, 4 and 4, in updates of 2
    assert (steps, candidates, same) == ("8", "96", "True")
    assert said["weighed"] == {"0": ["True"], "1": ["True"]}


@pytest.mark.slow
def test_processes_that_train_on_packed_documents_agree_and_go_on_from_a_checkpoint(tmp_path):
    if find_spec("trl") is None:
        pytest.skip("trl is not installed")
    said = run("sft", tmp_path)
    assert said["sft"]["0"] == said["sft"]["1"]
    steps, candidates, _, same = said["sft"]["0"]
    # of 32 documents a process in two epochs: 6 windows of 10, of which 5 each, in updates of 2
    assert (steps, candidates, same) == ("3", "64", "True")
    assert said["weighed"] == {"0": ["True"], "1": ["True"]}


@pytest.mark.slow
def test_processes_that_leave_out_completions_train_as_the_trainer_s_own(tmp_path):
    if find_spec("trl") is None:
        pytest.skip("trl is not installed")
    said = run("grpo", tmp_path)
    for loss in ("bnpo", "dapo", "rloo"):
        assert said[loss]["0"] == said[loss]["1"]  # also in the number of rows: they step together
        _, rows, of_all, alike = said[loss]["0"]
        assert (int(rows) < int(of_all), alike) == (True, "True"), loss


@pytest.mark.slow
def test_processes_that_refill_and_rest_prompts_agree_and_go_on_from_a_checkpoint(tmp_path):
    if find_spec("trl") is None:
        pytest.skip("trl is not installed")
    said = run("rollouts", tmp_path)
    assert said["rollouts"]["0"] == said["rollouts"]["1"]
    _, rows, resting, same = said["rollouts"]["0"]
    assert (int(rows) > 0, int(resting) > 0, same) == (True, True, "True")


@pytest.mark.slow
def test_a_loop_under_accelerate_does_so_too(tmp_path):
    if find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    said = run("loop", tmp_path)
    assert said["loop"]["0"] == said["loop"]["1"]
    batches, steps, _, same = said["loop"]["0"]
    # of 50 examples a process, in windows of 16: 3, 3 and 3 batches, stepped on at each end
    assert (batches, steps, same) == ("9", "6", "True")
    assert said["files"]["0"] == ["selection-0-of-2.pt", "selection-1-of-2.pt"]
