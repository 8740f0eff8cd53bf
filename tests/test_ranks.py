"""One process agrees with itself; several are refused until they can agree."""

import pytest
from torch import distributed

import selective_backprop as sb
from selective_backprop._ranks import Alone, find_ranks


@pytest.fixture
def group(tmp_path):
    """A process group of one rank."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


def test_a_process_without_a_group_is_alone():
    assert find_ranks() == Alone(rank=0, size=1)


@pytest.mark.usefixtures("group")
def test_a_group_of_one_is_alone():
    assert find_ranks() == Alone(rank=0, size=1)


@pytest.mark.usefixtures("group")
def test_several_ranks_are_refused_before_they_can_hang(monkeypatch):
    monkeypatch.setattr(distributed, "get_world_size", lambda: 4)
    with pytest.raises(sb.ConfigurationError, match="4 ranks"):
        find_ranks()


def test_where_torch_has_no_distribution_a_process_is_alone(monkeypatch):
    monkeypatch.setattr(distributed, "is_available", lambda: False)
    monkeypatch.delattr(distributed, "is_initialized")
    assert find_ranks() == Alone()
