"""A check on a device is read only once it has been copied to the host."""

from typing import Any, ClassVar

import torch

from selective_backprop._pipeline.nonfinite import LateChecks


class Number(torch.Tensor):
    """A number on the second device."""

    device = torch.device("cuda", 1)


class Event:
    recorded: ClassVar[list[Any]] = []

    def record(self, stream: Any = "the current device's") -> None:
        self.recorded.append(stream)


def test_a_check_waits_for_the_stream_of_its_own_device(monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: device)
    monkeypatch.setattr(torch, "empty", lambda size, pin_memory, **rest: empty(size, **rest))
    LateChecks().add(torch.ones(()).as_subclass(Number), lambda: RuntimeError("not finite"))
    assert Event.recorded == [Number.device]
