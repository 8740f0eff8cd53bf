"""A model's file that is edited between two commands."""

import hashlib
import sys
from pathlib import Path

import fixture_lab
import pytest
from fixture_command import run_command
from fixture_lab import few_digits, fixture_plan, run_plans

import selective_backprop as sb
from selective_backprop_lab.nets.models import fingerprint
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.runner import run_store
from selective_backprop_lab.training import run_config

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


def test_what_a_model_recorded_does_not_pass_for_that_of_the_edited_one(edit):
    train = f"train {SMALL} --strategy selective-backprop"
    folder = edit(16)
    assert run_command(train, folder).status == 0
    before = recorded(folder)
    assert run_command(train, edit(16)).out.count("recorded already") == 1
    for line in (train, f"compare {SMALL} --seeds 1 --strategies traditional,selective-backprop"):
        refused = run_command(line, edit(8))
        assert refused.status == 2
        assert "the file of net_to_edit:make has changed since" in refused.err
        assert "--again runs it anew" in refused.err
        assert recorded(folder) == before
    assert run_command(f"{train} --again", edit(8)).status == 0
    assert recorded(folder).keys() == before.keys()
    assert run_command(train, edit(8)).status == 0


@pytest.mark.parametrize(
    ("before", "now", "refused"),
    [("a", "b", True), ("a", "a", False), (None, "b", False), ("a", None, False)],
)
@pytest.mark.parametrize("finished", [True, False])
def test_records_and_checkpoints_of_either_file_are_told_apart_where_both_are_known(
    tmp_path, monkeypatch, before, now, refused, finished
):
    def run(fails=False):
        def watch(plan, point):
            if fails:
                raise InterruptedError

        plans = [fixture_plan(evaluations=2)]
        return run_plans(plans, few_digits(), tmp_path, command="", watch=watch)

    for module in (run_store, run_config):
        monkeypatch.setattr(module, "fingerprint", lambda model: before)
    if finished:
        run()
    else:
        with pytest.raises(InterruptedError):
            run(fails=True)
    for module in (run_store, run_config):
        monkeypatch.setattr(module, "fingerprint", lambda model: now)
    if refused:
        with pytest.raises(sb.RecordError, match="fixture_lab:small_net has changed"):
            run()
    else:
        run()
    (kept,) = read_runs(tmp_path)
    assert kept.header.model_file == before
    assert (b"model_file" in kept.path.read_bytes()) is (before is not None)
    assert kept.finished is (finished or not refused)
