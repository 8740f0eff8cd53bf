"""The command line as a whole: its reference, its help and how it ends."""

import importlib.util
import io
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from fixture_command import run_command

import selective_backprop as sb
from selective_backprop_lab.cli import main as cli

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("commands", DOCS / "commands.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_of_the_command_is_what_the_command_says_now(page):
    text = (DOCS / "command.md").read_text(encoding="utf-8")
    assert text == page.rewrite(text, cli.app), "run: python docs/commands.py"


def test_an_option_that_does_not_say_what_it_is_for_cannot_be_documented(page):
    app = typer.Typer()

    @app.command()
    def one(speed: int = 3) -> None:
        """Do it."""

    @app.command()
    def other() -> None:
        """Do the other."""

    with pytest.raises(ValueError, match="one --speed does not say what it is for"):
        page.describe(app)


def test_what_an_encoding_lacks_is_shown_as_a_question_mark(monkeypatch):
    out, err = (io.TextIOWrapper(io.BytesIO(), "cp1252") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "argv", ["selective-backprop", "report", "\N{MINUS SIGN}5 %"])
    with pytest.raises(SystemExit):
        cli.main()
    err.flush()
    assert err.buffer.getvalue() == b"error: ?5 %: no such folder of records.\n"
    assert out.errors == "replace"


def test_the_version_is_printed(tmp_path):
    outcome = run_command("--version", tmp_path)
    assert (outcome.status, outcome.out) == (0, f"selective-backprop {sb.__version__}\n")


@pytest.mark.parametrize("command", ["", *typer.main.get_command(cli.app).commands])
def test_help_fits_into_80_columns_and_cuts_no_sentence(tmp_path, command):
    lines = run_command(f"{command} --help", tmp_path, columns=80).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines[1:] if line.endswith("...")]


def test_help_imports_none_of_what_only_running_a_command_needs():
    code = """if True:
        import sys
        from selective_backprop_lab.cli import main as cli
        for command in ([], *([name] for name in sys.argv[1:])):
            cli.app([*command, "--help"], standalone_mode=False)
        print(*sys.modules)
    """
    commands = typer.main.get_command(cli.app).commands
    printed = subprocess.run(
        [sys.executable, "-c", code, *commands], capture_output=True, text=True, check=True
    ).stdout
    assert printed.count("Usage: ") == 1 + len(commands)
    loaded = set(printed.splitlines()[-1].split())
    assert "selective_backprop" in loaded
    slow = {"PIL", "jinja2", "matplotlib", "pandas", "scipy.special", "sklearn"}
    assert not {*slow, "torch._dynamo"} & loaded
