"""The examples for Transformers and Accelerate run, learn, and change three lines at most."""

import difflib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {"transformers": "transformers_text", "accelerate": "accelerate_digits"}
ERRORS = {"transformers": 40.0, "accelerate": 12.0}  # of a guess, more than 60 and 90 %


def code(name):
    text = (ROOT / "examples" / f"{name}.py").read_text()
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("framework", EXAMPLES)
def test_three_lines_at_most_are_new(framework):
    name = EXAMPLES[framework]
    changes = list(difflib.ndiff(code(f"{name}_plain"), code(name)))
    assert 1 <= len([line for line in changes if line.startswith("+ ")]) <= 3
    assert len([line for line in changes if line.startswith("- ")]) <= 1


@pytest.mark.parametrize("framework", EXAMPLES)
def test_the_example_runs_without_a_network_and_learns(framework, tmp_path):
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{EXAMPLES[framework]}.py")],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "ACCELERATE_USE_CPU": "true",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    steps, error = re.search(r"(\d+) steps, test error (\d+\.\d)%", ended.stdout).groups()
    assert int(steps) > 100
    assert float(error) < ERRORS[framework]
