"""A comparison that the tests of several commands look at, and commands that do only a part."""

import shutil
from types import SimpleNamespace

import pytest
from fixture_command import run_command

from selective_backprop_lab.runner import grid

SMALL = "--limit 256 --epochs 2 --evaluations 3 --rate 1/2"
ARMS = "--strategies traditional,selective-backprop --no-shorter"
COMPARE = f"compare {SMALL} --seeds 2 {ARMS} --out out"


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """A comparison, carried out once, and what it printed."""
    folder = tmp_path_factory.mktemp("compared")
    return SimpleNamespace(folder=folder, line=COMPARE, outcome=run_command(COMPARE, folder))


@pytest.fixture
def copy(compared, tmp_path):
    """The comparison's folder, to be changed at will."""
    shutil.copytree(compared.folder / "out", tmp_path / "out")
    return tmp_path


@pytest.fixture
def untrained(monkeypatch):
    """Nothing can be trained."""

    def refuse(plan, data, **_):
        raise AssertionError(f"{plan.arm} is trained")

    monkeypatch.setattr(grid, "TrainingRun", refuse)
