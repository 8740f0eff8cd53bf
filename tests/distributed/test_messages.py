"""Messages between ranks, where the backend is a stand-in: what is kept, and for how long."""

import threading
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import distributed

import selective_backprop as sb
from selective_backprop._distributed import group
from selective_backprop._distributed.group import Exchange, Group, Status
from selective_backprop._pipeline.lockstep import LockstepBatches
from selective_backprop._pipeline.rows import Rows

ALL = Group(0, 2, torch.device("cpu"))


class Backend:
    """Holds what is sent outside of Python, as a thread of gloo does for a moment."""

    def __init__(self):
        self.held, self.sent = [], []

    def all_gather(self, places, message, group, async_op):
        assert async_op
        for place in places:
            place.copy_(message)
        tensors = [*places, message]
        with torch.enable_grad():  # what is saved for a backward pass is held
            factor = torch.ones((), requires_grad=True)
            self.held.append([tensor * factor for tensor in tensors])
        self.sent.append([weakref.ref(tensor) for tensor in tensors])
        return SimpleNamespace(wait=lambda: None)

    def kept(self):
        return [any(one() is not None for one in each) for each in self.sent]


@pytest.fixture
def backend(monkeypatch):
    backend = Backend()
    monkeypatch.setattr(distributed, "all_gather", backend.all_gather)
    return backend


def swap():
    assert ALL.gather(torch.arange(3.0), "sends").tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("inference", [False, True])
def test_the_backend_is_never_the_last_to_let_go_of_what_was_sent(backend, inference):
    with torch.inference_mode(inference):
        swap()
    del backend.held[0]
    assert all(one() is not None for one in backend.sent[0])
    assert all(one()._use_count() > 1 for one in backend.sent[0])  # so Python is not asked


def test_what_the_backend_has_let_go_of_is_not_kept_for_long(backend):
    swap()
    swap()
    assert backend.kept() == [True, True]
    del backend.held[0]
    swap()
    assert backend.kept() == [False, True, True]
    backend.held.clear()
    swap()
    assert backend.kept() == [False, False, False, True]


def test_python_shuts_down_only_once_the_backend_has_let_go_of_what_was_sent(backend):
    swap()
    letting_go = threading.Timer(0.2, backend.held.clear)
    letting_go.start()
    group._wait_for_gloo()  # as at exit
    assert not backend.held
    assert backend.kept() == [False]
    letting_go.join()


def test_a_backend_that_never_lets_go_does_not_keep_python_from_shutting_down(backend, monkeypatch):
    monkeypatch.setattr(group, "MOST_AT_EXIT", 0.1)
    swap()
    group._wait_for_gloo()
    assert backend.kept() == [True]
    backend.held.clear()


def test_a_batch_may_be_trained_on_while_messages_travel():
    events = []

    class Post(Exchange):
        def send(self, head, scores):
            events.append(head.status.name)
            return lambda: events.append("arrived") or ([head] * 2, [])

    lockstep = LockstepBatches(Post(ALL, 0), None, overlaps=True)
    lockstep.alike = True
    taken = lockstep.take(lambda: None, (Rows(None, 1) for _ in range(2)))
    next(taken)
    assert events == ["READY"]
    next(taken)
    lockstep.settle()  # before a state is saved
    assert events == ["READY", "arrived", "READY", "arrived"]
    assert list(taken) == []
    assert events[4:] == ["ENDED", "arrived"]


def test_a_rank_that_ends_too_early_is_noticed():
    class Post(Exchange):
        def send(self, head, scores):
            return lambda: ([head, head._replace(status=Status.ENDED)], [])

    lockstep = LockstepBatches(Post(ALL, 0), None, overlaps=True)
    lockstep.alike = True
    taken = lockstep.take(lambda: None, (Rows(None, 1) for _ in range(2)))
    next(taken)
    with pytest.raises(sb.LoaderError, match="overlap=True"):
        next(taken)
