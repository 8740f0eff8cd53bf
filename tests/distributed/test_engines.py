"""The examples for engines that start several processes, each with two local workers."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCHRUN = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"
STARTS = {
    "torch": [*TORCHRUN, "examples/torchrun_ddp.py"],
    "accelerate": [*TORCHRUN, "examples/accelerate_digits.py"],
    "lightning": ["examples/lightning_ddp.py"],
    "ray": ["examples/ray_ddp.py"],
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", STARTS)
def test_an_engine_s_two_workers_take_equally_many_steps_and_learn(engine, tmp_path):
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "ACCELERATE_USE_CPU": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HOME": str(tmp_path),  # for what engines keep there
    }
    ended = subprocess.run(
        [sys.executable, *STARTS[engine]],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = re.findall(r"rank (\d): (\d+) steps, test error (\d+\.\d)%", ended.stdout)
    assert sorted(rank for rank, *_ in found) == ["0", "1"], ended.stdout
    assert len({steps for _, steps, _ in found}) == 1
    assert all(float(error) < 12.0 for *_, error in found)
