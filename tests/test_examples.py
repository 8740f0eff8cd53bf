"""The examples run, learn, and show how little a loop has to change."""

import difflib
import re
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run_example(capsys):
    """Runs an example, and returns the steps it took and the error, in percent, it ended with."""

    def run(name):
        with torch.random.fork_rng(devices=[]):
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        said = capsys.readouterr().out
        steps, error = re.fullmatch(r"(\d+) steps, test error (\d+\.\d)%\n", said).groups()
        return int(steps), float(error)

    return run


def code(name):
    return [line for line in (EXAMPLES / name).read_text().splitlines() if line.strip()]


def test_three_lines_are_added_to_a_plain_loop_and_none_is_changed():
    changes = list(difflib.ndiff(code("plain.py"), code("selective.py")))
    added = [line for line in changes if line.startswith("+ ")]
    assert 1 <= len(added) <= 3
    assert not [line for line in changes if line.startswith("- ")]


def test_both_examples_learn_and_the_selective_one_takes_fewer_steps(run_example):
    plain, selective = run_example("plain.py"), run_example("selective.py")
    assert plain[0] == 8 * 44
    assert 0.3 * plain[0] < selective[0] < 0.5 * plain[0]
    assert plain[1] < 8.0
    assert selective[1] < 8.0
