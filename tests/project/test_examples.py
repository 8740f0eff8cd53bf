"""The examples run, learn, and show how little a loop has to change."""

import ast
import functools
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

import selective_backprop as sb

EXAMPLES = Path(__file__).parents[2] / "examples"


# Small nets that are trained for a few epochs: how many steps are there without selection?
ADAPTED = {
    **{"accumulation.py": 6 * 87 // 2, "autocast.py": 6 * 44, "compiled.py": 6 * 43},
    **{"dict_batches.py": 6 * 44, "detection.py": 12 * 44, "streaming.py": 6 * 44},
    "table.py": 6 * 25,
}


SAID = r"(\d+(?:\.\d)?) (?:passes, \d+\.\d s|steps), test error (\d+\.\d)%\n"


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a program; returns the passes or steps it took and the error it ended with, by line."""

    def run(source, *arguments):
        monkeypatch.setattr(sys, "argv", ["example.py", *arguments])
        with torch.random.fork_rng(devices=[]):
            exec(compile(source, "example.py", "exec"), {"__name__": "__main__"})
        said = capsys.readouterr().out
        found = re.findall(SAID, said)
        assert len(found) == said.count("\n")
        return [(float(taken), float(error)) for taken, error in found]

    return run


def source(name):
    return (EXAMPLES / name).read_text(encoding="utf-8")


def code(name):
    return [line for line in source(name).splitlines() if line.strip()]


def test_where_labels_are_wrong_the_selective_example_ends_below_plain_training_of_its_cost(run):
    [plain], [selective] = run(source("plain.py")), run(source("selective.py"))
    [shortened] = run(source("plain.py"), "8")
    assert (plain[0], shortened[0]) == (16.0, 8.0)
    assert 6.0 < selective[0] < 10.0
    assert selective[1] < shortened[1] - 0.6 < plain[1] - 0.6


def test_where_labels_are_right_and_few_the_example_says_that_nothing_is_gained(run):
    plain, selective, shortened = run(source("no_gain.py"))
    assert (plain[0], shortened[0]) == (16.0, 4.0)
    assert 3.0 < selective[0] < 5.0
    assert abs(selective[1] - shortened[1]) < 1.0
    assert max(plain[1], selective[1], shortened[1]) < 4.0


def without_selection(name):
    """Return an example without its statements that name this package, and how many lines go."""
    lines = code(name)
    gone = set()
    for statement in ast.parse("\n".join(lines)).body:
        if re.search(r"\bsb\b", ast.unparse(statement)):
            gone |= set(range(statement.lineno - 1, statement.end_lineno))
    return "\n".join(line for number, line in enumerate(lines) if number not in gone), len(gone)


def test_every_example_is_run_here_or_where_its_framework_is():
    ranked = {f"{name}_ddp" for name in ("accelerate", "lightning", "ray", "torchrun")}
    framed = {"accelerate_digits", "lightning_digits", "keras_digits", "transformers_text", "sft"}
    plain = {"accelerate_digits_plain", "keras_digits_plain", "lightning_plain"}
    elsewhere = ranked | framed | plain | {"transformers_text_plain"}
    here = {path.name for path in EXAMPLES.glob("*.py") if path.stem not in elsewhere}
    assert here == {"plain.py", "selective.py", "no_gain.py", "grpo.py", *ADAPTED}


@pytest.mark.parametrize("kind", ["transformers_text", "table", "detection", "grpo", "sft"])
def test_the_example_of_a_kind_of_training_is_short(kind):
    assert len(code(f"{kind}.py")) < 60


def run_without_and_with_selection(name, run):
    plain, lines = without_selection(name)
    assert 2 <= lines <= 3
    [(steps, error)], [selective] = run(plain), run(source(name))
    assert steps == ADAPTED[name]
    assert 0.35 * steps < selective[0] < 0.5 * steps
    assert max(error, selective[1]) < 15.0


@pytest.mark.parametrize("name", sorted(set(ADAPTED) - {"compiled.py"}))
def test_three_lines_taken_from_an_example_leave_plain_training(name, run):
    run_without_and_with_selection(name, run)


def test_a_policy_learns_the_same_without_the_rows_of_gradient_zero(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["grpo.py", "12"])
    with torch.random.fork_rng(devices=[]):
        names = runpy.run_path(str(EXAMPLES / "grpo.py"), run_name="__main__")
        shown = re.findall(r"reward (\d\.\d+), matched (\d\.\d+)", capsys.readouterr().out)
        assert len(shown) == 12
        assert all(plain == match for plain, match in shown)
        policies = [names["train"](nonzero, 30) for nonzero in (None, sb.NonzeroRows())]
    (plain, rewards, rows), (match, same, fewer) = policies
    assert rewards == same
    assert sum(rewards) > 0
    assert rows == 30 * 128
    assert fewer < rows / 5
    for one, other in zip(plain.parameters(), match.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_a_model_is_compiled_once_to_train_and_once_to_score(run, monkeypatch):
    torch.compiler.reset()
    counted = torch._dynamo.utils.counters["stats"]
    before = counted["unique_graphs"]
    # A backend that needs no C++ compiler, nor the minute that one takes.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    run_without_and_with_selection("compiled.py", run)
    # Training without selection and with it is one graph, of which the weights are inputs.
    assert counted["unique_graphs"] == before + 2
