"""The examples for frameworks run, learn, and show how little a program has to change."""

import difflib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
# A framework's plain and selective program, the lines that differ (at most), the steps of the
# plain one and the most of them that the selective one takes, and the highest error in percent.
FRAMEWORKS = {
    "transformers": ("transformers_text_plain", "transformers_text", (3, 1), None, 0.85, 20.0),
    "accelerate": ("accelerate_digits_plain", "accelerate_digits", (4, 0), None, 0.6, 12.0),
    "lightning": ("lightning_plain", "lightning_digits", (10, 3), 8 * 44, 0.6, 8.0),
    "keras": ("keras_digits_plain", "keras_digits", (3, 1), 8 * 44, 0.55, 13.0),
}


def program(name):
    return (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")


def code(name):
    lines = program(name).splitlines()
    return [line for line in lines if line.strip() and not line.startswith('"""')]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_few_lines_are_new(framework):
    plain, selective, (added, gone), *_ = FRAMEWORKS[framework]
    changes = [line[0] for line in difflib.ndiff(code(plain), code(selective))]
    assert 1 <= changes.count("+") <= added
    assert changes.count("-") <= gone


def run(name, folder, result=r"(\d+) steps, test error (\d+\.\d)%"):
    """Run an example without a network, and return steps and error of each of its trainings."""
    script = folder / "program.py"
    script.write_text(program(name))
    environment = os.environ | {
        **{"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        **{"ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1", "HOME": str(folder)},
        "KERAS_BACKEND": "torch",
    }
    options = {"cwd": folder, "env": environment, "timeout": 300}
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [(int(steps), float(error)) for steps, error in re.findall(result, ended.stdout)]


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_both_examples_learn_and_the_selective_one_takes_fewer_steps(framework, tmp_path):
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    *names, _, exact, most, error = FRAMEWORKS[framework]
    plain, selective = (run(name, tmp_path)[0] for name in names)
    assert plain[0] == exact or (exact is None and plain[0] > 300)
    assert 0.3 * plain[0] < selective[0] < most * plain[0]
    assert max(plain[1], selective[1]) < error


@pytest.mark.slow
def test_a_language_model_learns_from_packed_documents_in_fewer_steps(tmp_path):
    pytest.importorskip("trl")
    found = run("sft", tmp_path, r"(\d+) steps, (\d+\.\d+) bits")
    (plain, bits), (selective, fewer_bits), shortened = found
    assert plain > 150
    assert selective == shortened[0] == 2 * plain // 3
    assert bits < 4.5  # 8 before training
    assert abs(fewer_bits - shortened[1]) < 0.5
