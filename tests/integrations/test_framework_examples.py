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


def run(name, folder):
    """Run an example without a network, and return its steps and the error that it ends with."""
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT / "src"),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "ACCELERATE_USE_CPU": "true",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    steps, error = re.search(r"(\d+) steps, test error (\d+\.\d)%", ended.stdout).groups()
    return int(steps), float(error)


@pytest.mark.slow
@pytest.mark.parametrize("framework", EXAMPLES)
def test_both_examples_learn_and_the_selective_one_takes_fewer_steps(framework, tmp_path):
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    name = EXAMPLES[framework]
    plain, selective = (run(each, tmp_path) for each in (f"{name}_plain", name))
    assert plain[0] > 300
    assert 0.3 * plain[0] < selective[0] < 0.65 * plain[0]
    assert max(plain[1], selective[1]) < ERRORS[framework]
