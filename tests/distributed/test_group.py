"""Who trains together, and what they send is small and means the same to all."""

import pytest
import torch
from fixture_loaders import Numbered, select
from torch import distributed
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop._distributed.group import Exchange, Group, Head, Status, find_ranks


@pytest.mark.usefixtures("lone_rank")
def test_a_group_of_one_is_alone():
    assert find_ranks() == Group(rank=0, size=1)


def test_where_torch_has_no_distribution_a_process_is_alone(monkeypatch):
    monkeypatch.setattr(distributed, "is_available", lambda: False)
    monkeypatch.delattr(distributed, "is_initialized")
    assert find_ranks() == Group()


def test_a_group_without_a_running_one_is_refused():
    with pytest.raises(sb.ConfigurationError, match="init_process_group"):
        find_ranks("world")


@pytest.mark.usefixtures("lone_rank")
def test_what_is_no_group_is_refused():
    with pytest.raises(sb.ConfigurationError, match=r"process_group=\[0, 1\]"):
        find_ranks([0, 1])


@pytest.mark.usefixtures("lone_rank")
@pytest.mark.parametrize(
    ("backends", "device", "found"),
    [
        ("cpu:gloo,cuda:gloo", "cuda:1", "cpu"),
        ("cuda:nccl", "cuda:1", "cuda:1"),
        ("cpu:gloo,cuda:nccl", "cuda:1", "cuda:1"),
        ("cpu:gloo,cuda:nccl", "cpu", "cpu"),
        ("cpu:gloo,cuda:gloo", None, "cpu"),
    ],
)
def test_messages_lie_where_they_can_be_sent(monkeypatch, backends, device, found):
    monkeypatch.setattr(distributed, "get_backend_config", lambda members: backends)
    monkeypatch.setattr(distributed, "get_world_size", lambda members: 2)
    ranks = find_ranks(device=None if device is None else torch.device(device))
    assert ranks == Group(0, 2, torch.device(found))


def test_heads_and_scores_are_sent_bit_for_bit(monkeypatch):
    monkeypatch.setattr(Group, "send", lambda self, message, doing: lambda: message.expand(2, -1))
    exchange = Exchange(Group(0, 2, torch.device("cpu")), rows=6)
    scores = torch.tensor([1.5, -0.0, float("inf"), 1e-42, 2049.0])
    head = Head(Status.READY, 3, 7, 2**31 + 5)  # an int32 holds 2^31 - 1, then it begins anew
    heads, shared = exchange.send(head, [scores[:2], scores[2:].double().float()])()
    assert heads == [Head(Status.READY, 3, 7, 5)] * 2
    for one in shared:
        assert one.view(torch.int32).tolist() == scores.view(torch.int32).tolist()


@pytest.mark.usefixtures("lone_rank")
def test_a_loader_that_was_built_before_the_group_does_not_begin_alone(monkeypatch):
    loader = select(DataLoader(Numbered(8), 4), sb.traditional())
    monkeypatch.setattr(distributed, "get_world_size", lambda members: 2)
    with pytest.raises(sb.ConfigurationError, match="before init_process_group"):
        next(iter(loader))


def test_rows_of_any_number_are_gathered_in_pieces_of_bounded_size(monkeypatch):
    sizes = []

    def gather(self, message, doing):
        sizes.append(len(message))
        return torch.stack([message, message + 100])

    monkeypatch.setattr(Group, "gather", gather)
    monkeypatch.setattr("selective_backprop._distributed.group.MOST_AT_ONCE", 6)
    rows = torch.arange(1, 8)
    pieces = list(Group(0, 2, torch.device("cpu")).gather_rows(rows, [7, 4]))
    assert sizes == [3, 3, 1]
    assert [(rank, start) for rank, start, _ in pieces] == [(0, 0), (1, 0), (0, 3), (1, 3), (0, 6)]
    found = {rank: torch.cat([p for r, _, p in pieces if r == rank]).tolist() for rank in (0, 1)}
    assert found == {0: list(range(1, 8)), 1: [101, 102, 103, 104]}
