"""The command needs an extra, and says so."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import selective_backprop as sb
from selective_backprop import __main__ as command


def test_without_its_extra_the_command_names_what_to_install(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "selective_backprop.lab.cli.main", raising=False)
    monkeypatch.delattr("selective_backprop.lab.cli.main", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    assert command.main() == 1
    message = capsys.readouterr().err
    assert "'typer'" in message
    assert "pip install 'selective-backprop[lab]'" in message


def test_a_fault_in_the_lab_itself_is_no_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "selective_backprop.lab.cli.main", None)
    monkeypatch.delattr("selective_backprop.lab.cli.main", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"selective_backprop\.lab\.cli"):
        command.main()


def test_with_its_extra_the_command_is_the_labs(monkeypatch):
    cli = ModuleType("cli")
    cli.main = lambda: 7
    monkeypatch.setitem(sys.modules, "selective_backprop.lab.cli.main", cli)
    monkeypatch.setattr("selective_backprop.lab.cli.main", cli, raising=False)
    assert command.main() == 7


def test_python_runs_the_package_as_the_command():
    said = subprocess.run(
        [sys.executable, "-m", "selective_backprop", "--version"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"selective-backprop {sb.__version__}\n"
