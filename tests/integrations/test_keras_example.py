"""The example runs, learns, and shows how little a Keras program has to change."""

import difflib
import re
import runpy
from pathlib import Path

from fixture_keras import QUIET

pytestmark = QUIET

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "keras_digits.py"


def plain_program():
    page = (ROOT / "docs" / "keras.md").read_text(encoding="utf-8")
    return re.search(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)[1]


def code(text):
    return [line for line in text.splitlines() if line.strip() and not line.startswith('"""')]


def result(said):
    steps, error = re.fullmatch(r"(\d+) steps, test error (\d+\.\d)%\n", said).groups()
    return int(steps), float(error)


def test_two_lines_are_added_to_plain_keras_and_one_is_changed():
    changes = list(difflib.ndiff(code(plain_program()), code(EXAMPLE.read_text())))
    assert len([line for line in changes if line.startswith("+ ")]) == 3
    assert len([line for line in changes if line.startswith("- ")]) == 1


def test_both_learn_and_the_selective_one_takes_fewer_steps(capsys):
    exec(plain_program(), {})
    plain = result(capsys.readouterr().out)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    selective = result(capsys.readouterr().out)
    assert plain[0] == 8 * 44
    assert 0.3 * plain[0] < selective[0] < 0.5 * plain[0]
    assert max(plain[1], selective[1]) < 9.0
