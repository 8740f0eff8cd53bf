"""Messages between ranks, where the backend is a stand-in: what it keeps, and for how long."""

import threading
import time

import pytest
import torch
from torch import distributed

from selective_backprop import _ranks
from selective_backprop._ranks import Group

ALL = Group(0, 2, torch.device("cpu"))


def keep(tensors):
    """Hold tensors outside of Python, as saved for a backward pass, while the list lives."""
    factor = torch.ones((), requires_grad=True)
    return [tensor * factor for tensor in tensors]


@pytest.fixture
def held(monkeypatch):
    """Hold what is sent; yields what a thread of the backend has in hand."""
    hand = []

    def all_gather(places, message, group):
        for place in places:
            place.copy_(message)
        hand.extend(keep([*places, message]))

    monkeypatch.setattr(distributed, "all_gather", all_gather)
    return hand


def test_a_message_returns_once_the_backend_has_dropped_what_it_sent(held):
    dropped = []

    def drop():
        time.sleep(0.05)
        dropped.append(True)
        held.clear()

    thread = threading.Thread(target=drop)
    thread.start()
    told = ALL.gather(torch.arange(3.0))
    assert dropped
    assert told.tolist() == [[0, 1, 2], [0, 1, 2]]
    thread.join()


def test_a_backend_that_keeps_what_it_sent_is_not_waited_for_long(held, monkeypatch):
    monkeypatch.setattr(_ranks, "LETTING_GO", 0.01)
    assert ALL.gather(torch.arange(3.0)).shape == (2, 3)
    assert held
