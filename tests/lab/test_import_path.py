"""Functions of the user's, and a model's file that is edited between two commands."""

import hashlib
import sys
from pathlib import Path

import fixture_lab
import pytest
from fixture_command import run_command

from selective_backprop_lab.names import fingerprint
from selective_backprop_lab.records.schema import read_runs

SMALL = "--limit 128 --epochs 2 --evaluations 2 --rate 1/2 --model net_to_edit:make --out out"
NET = """
from torch import nn

def make(channels, classes, side):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, {width}), nn.Linear({width}, classes))
"""


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Writes a net of some width, as it is for the next command, and returns its folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(width):
        (tmp_path / "net_to_edit.py").write_text(NET.format(width=width))
        sys.modules.pop("net_to_edit", None)
        return tmp_path

    yield write
    sys.modules.pop("net_to_edit", None)


def recorded(folder):
    return {path.name: path.read_bytes() for path in folder.glob("out/*.jsonl")}


def test_a_net_of_the_lab_has_none_and_neither_has_what_is_not_there():
    assert fingerprint("small_cnn") is None
    assert fingerprint("digits:0-4") is None
    assert fingerprint("no_such_module:net") is None
    assert fingerprint("no_such_net") is None


def test_it_is_that_of_the_file_in_which_the_model_is_made(tmp_path, monkeypatch):
    (tmp_path / "passed_on.py").write_text(
        "from functools import partial\n"
        "from fixture_lab import run_plans, small_net\n"
        "made_here = partial(small_net)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def of_file(path):
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]

    assert fingerprint("passed_on:small_net") == of_file(fixture_lab.__file__)
    assert fingerprint("passed_on:made_here") == of_file(tmp_path / "passed_on.py")
    before = fingerprint("passed_on:made_here")
    (tmp_path / "passed_on.py").write_text("edited, which what was imported does not know\n")
    assert fingerprint("passed_on:made_here") == before


def test_an_edited_model_is_run_anew_and_the_records_of_before_stay(edit):
    train = f"train {SMALL} --strategy selective-backprop"
    folder = edit(16)
    assert run_command(train, folder).status == 0
    before = recorded(folder)
    assert run_command(train, edit(16)).out.count("recorded already") == 1
    assert run_command(train, edit(8)).status == 0
    after = recorded(folder)
    assert len(after) == 2
    assert before.items() <= after.items()
    assert len({run.header.model_file for run in read_runs(folder / "out")}) == 2
    assert run_command(train, edit(8)).out.count("recorded already") == 1
    assert run_command(train, edit(16)).out.count("recorded already") == 1
