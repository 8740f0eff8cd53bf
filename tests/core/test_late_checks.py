"""A check on a device is read only once it has been copied to the host."""

from typing import Any

import torch

from selective_backprop._core.late_checks import LateChecks


class Number(torch.Tensor):
    """A number on the second device."""

    device = torch.device("cuda", 1)


class Stream:
    def __init__(self, device: Any = "current") -> None:
        self.device = device

    def record_event(self) -> Any:
        return self

    def query(self) -> bool:
        return True


def test_a_check_waits_for_the_stream_of_its_own_device(monkeypatch):
    asked, empty = [], torch.empty

    def stream(device: Any = None) -> Stream:
        asked.append(device)
        return Stream(device)

    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    monkeypatch.setattr(torch.cuda.Event, "record", lambda self: asked.append(None))
    monkeypatch.setattr(torch, "empty", lambda size, pin_memory, **rest: empty(size, **rest))
    LateChecks().add(torch.ones(()).as_subclass(Number), lambda: RuntimeError("not finite"))
    assert asked == [Number.device]
