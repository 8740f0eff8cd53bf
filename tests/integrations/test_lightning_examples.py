"""The examples for Lightning run, learn, and show how little a program has to change."""

import difflib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def code(name):
    lines = (ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip()]


def test_three_lines_of_a_plain_program_change():
    changes = list(difflib.ndiff(code("lightning_plain.py"), code("lightning_digits.py")))
    assert sum(line.startswith("+ ") for line in changes) == 3
    assert sum(line.startswith("- ") for line in changes) == 2


@pytest.mark.slow
def test_both_examples_learn_and_the_selective_one_takes_fewer_steps():
    if find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    found = []
    for name in ("lightning_plain.py", "lightning_digits.py"):
        ended = subprocess.run(
            [sys.executable, str(ROOT / "examples" / name)],
            env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        steps, error = re.findall(r"(\d+) steps, test error (\d+\.\d)%", ended.stdout)[0]
        found.append((int(steps), float(error)))
    (plain, plain_error), (selective, selective_error) = found
    assert plain == 8 * 44
    assert 0.3 * plain < selective < 0.5 * plain
    assert plain_error < 8.0
    assert selective_error < 8.0
