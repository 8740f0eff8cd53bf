"""The command needs an extra, and says so."""

import sys
from types import ModuleType

import pytest

from selective_backprop import _command


def test_without_its_extra_the_command_names_what_to_install(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "selective_backprop.lab.cli.main", raising=False)
    monkeypatch.delattr("selective_backprop.lab.cli.main", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    assert _command.main() == 1
    message = capsys.readouterr().err
    assert "'typer'" in message
    assert "pip install 'selective-backprop[lab]'" in message


def test_a_fault_in_the_lab_itself_is_no_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "selective_backprop.lab.cli.main", None)
    monkeypatch.delattr("selective_backprop.lab.cli.main", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"selective_backprop\.lab\.cli"):
        _command.main()


def test_with_its_extra_the_command_is_the_labs(monkeypatch):
    cli = ModuleType("cli")
    cli.main = lambda: 7
    monkeypatch.setitem(sys.modules, "selective_backprop.lab.cli.main", cli)
    monkeypatch.setattr("selective_backprop.lab.cli.main", cli, raising=False)
    assert _command.main() == 7
