"""The command needs an extra, and says so."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

import selective_backprop as sb
from selective_backprop import __main__ as command

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("missing", [["typer"], ["matplotlib", "pandas"]])  # at once, and later
def test_without_its_extra_the_command_names_what_to_install(monkeypatch, capsys, missing):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys, "argv", ["selective-backprop", "--help"])
    assert command.main() == 1
    message = capsys.readouterr().err
    assert ", ".join(missing) in message
    assert "pip install 'selective-backprop[lab]'" in message


def test_what_the_command_looks_for_is_what_its_extra_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [each.partition(">")[0] for each in project["optional-dependencies"]["lab"]]
    installed = packages_distributions()
    assert [installed[name][0].lower() for name in command.LAB] == needed


def test_with_its_extra_the_command_is_the_labs_and_a_fault_in_the_lab_is_no_missing_extra(
    monkeypatch,
):
    cli, name = ModuleType("cli"), "selective_backprop_lab.cli.main"
    cli.main = lambda: 7
    monkeypatch.setitem(sys.modules, name, cli)
    monkeypatch.setattr(name, cli, raising=False)
    assert command.main() == 7
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(name, raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"selective_backprop_lab\.cli"):
        command.main()


def test_python_runs_the_package_as_the_command():
    command, place = [sys.executable, "-m", "selective_backprop"], {"PYTHONPATH": str(ROOT / "src")}
    said = subprocess.check_output([*command, "--version"], env=os.environ | place, text=True)
    assert said == f"selective-backprop {sb.__version__}\n"
