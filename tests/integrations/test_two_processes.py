"""Two processes under Trainers, Lightning and Accelerate: equal steps, equal weights, resumed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(task, folder, framework):
    """What each of two processes said, by name."""
    pytest.importorskip(framework)
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = (ROOT / "src", ROOT / "tests" / "fixtures", HERE)
    environment = os.environ | {
        **{"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"},
        **{"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "HOME": str(folder)},
    }
    command = [sys.executable, *start, str(HERE / "ranks_script.py"), task, str(folder / "saved")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-6000:]
    said = {}
    for name, rank, words in re.findall(r"^(\w+) (\d): (.*)$", ended.stdout, re.MULTILINE):
        said.setdefault(name, {})[rank] = words.split()
    assert all(ranks["0"] == ranks["1"] for ranks in said.values())  # they step together
    return {name: ranks["0"] for name, ranks in said.items()}


def test_the_trainer_s_processes_take_equal_steps_and_go_on_from_a_checkpoint(tmp_path):
    said = run("trainer", tmp_path, "transformers")
    steps, candidates, _, same = said["trainer"]
    # of 32 examples a process: 8 batches, 4 and 4, in updates of 2
    assert (steps, candidates, same) == ("8", "96", "True")
    assert said["weighed"] == ["True"]


def test_processes_that_train_on_packed_documents_agree_and_go_on_from_a_checkpoint(tmp_path):
    said = run("sft", tmp_path, "trl")
    steps, candidates, _, same = said["sft"]
    # of 32 documents a process in two epochs: 6 windows of 10, of which 5 each, in updates of 2
    assert (steps, candidates, same) == ("3", "64", "True")
    assert said["weighed"] == ["True"]


def test_processes_that_leave_out_completions_train_as_the_trainer_s_own(tmp_path):
    said = run("grpo", tmp_path, "trl")
    for loss in ("bnpo", "dapo", "rloo"):
        _, rows, of_all, alike = said[loss]
        assert (int(rows) < int(of_all), alike) == (True, "True"), loss


def test_processes_that_refill_and_rest_prompts_agree_and_go_on_from_a_checkpoint(tmp_path):
    _, rows, resting, same = run("rollouts", tmp_path, "trl")["rollouts"]
    assert (int(rows) > 0, int(resting) > 0, same) == (True, True, "True")


def test_lightning_s_processes_share_the_data_stay_together_and_go_on_bit_for_bit(tmp_path):
    said = run("lightning", tmp_path, "lightning")
    assert {name: held for name, (_, *held) in said.items()} == dict.fromkeys(
        ("selective", "coins", "recorded"), ["True"] * 5
    )


def test_a_loop_under_accelerate_does_so_too(tmp_path):
    said = run("loop", tmp_path, "accelerate")
    batches, steps, _, same = said["loop"]
    # of 50 examples a process, in windows of 16: 3, 3 and 3 batches, stepped on at each end
    assert (batches, steps, same) == ("9", "6", "True")
    assert said["files"] == ["selection-0-of-2.pt", "selection-1-of-2.pt"]
