"""Scoring on a second stream: what waits for what, and on CUDA that the host never does."""

import copy
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fixture_loaders import fresh_net, same_tensors
from fixture_pipelined import BATCHES, InLine, losses
from torch import nn
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop._batches.losses import ExampleLosses
from selective_backprop.experimental import _pipelined
from selective_backprop.experimental._pipelined import StreamBackend

CPU = torch.device("cpu")


def step(model: nn.Module, batch: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer.zero_grad()
    losses(model, batch).mean().backward()
    optimizer.step()


class Work:
    """Something that a stream does, and what is done when it begins: so much of each stream."""

    def __init__(self, stream: "Stream") -> None:
        stream.done[stream] = stream.done.get(stream, 0) + 1
        self.stream, self.number, self.done = stream, stream.done[stream], dict(stream.done)

    def follows(self, other: "Work") -> bool:
        return self.done.get(other.stream, 0) >= other.number


class Event:
    def __init__(self) -> None:
        self.done: dict[Stream, int] = {}

    def record(self, stream: "Stream") -> None:
        self.done = dict(stream.done)


class Stream:
    """As CUDA's: ordered by itself, and with others by events alone."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.done: dict[Stream, int] = {}

    def wait_event(self, event: Event) -> None:
        for stream, number in event.done.items():
            self.done[stream] = max(number, self.done.get(stream, 0))

    def wait_stream(self, stream: "Stream") -> None:
        self.wait_event(self.record_event() if stream is self else stream.record_event())

    def record_event(self) -> Event:
        event = Event()
        event.record(self)
        return event


class Device:
    """Streams without a device, and what was done on them, in the order of the host."""

    def __init__(self) -> None:
        self.current: dict[torch.device, Stream] = {}
        self.log: dict[str, list[Work]] = {"staged": [], "taken": [], "scored": []}

    def current_stream(self, device: torch.device) -> Stream:
        return self.current.setdefault(device, Stream(device))

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = self.current_stream(stream.device)
        self.current[stream.device] = stream
        yield
        self.current[stream.device] = before

    def work(self, device: torch.device) -> Work:
        return Work(self.current_stream(device))


@pytest.fixture
def bench(monkeypatch) -> Iterator[SimpleNamespace]:
    """A backend on the CPU whose streams are noted."""
    device, model = Device(), fresh_net()
    for name in ("current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(device, name))
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)

    def noting(twin: nn.Module, source: nn.Module) -> None:
        staged = source is model
        device.log["staged" if staged else "taken"].append(device.work(CPU))
        update(twin, source)

    update = _pipelined.update
    monkeypatch.setattr(_pipelined, "update", noting)

    def noted_losses(model, batch):
        device.log["scored"].append(device.work(CPU))
        return losses(model, batch)

    context = sb.scorers.Context(8, 16, model, noted_losses)
    with unhooked():  # streams are not CUDA's
        backend = StreamBackend(sb.scorers.Forward(), context, model, CPU)
        yield SimpleNamespace(backend=backend, model=model, log=device.log, work=device.work)


@pytest.mark.parametrize("every", [1, 3])
def test_every_step_waits_for_what_it_needs_and_training_for_no_batch_in_flight(bench, every):
    log, trained, used, begun = bench.log, [], [], deque()
    for i, batch in enumerate(BATCHES):
        before = bench.work(CPU)  # such as the copy of the batch to the device
        begun.append(bench.backend.begin(batch, None, renew=i % every == 0))
        assert log["scored"][-1].follows(before)
        assert log["scored"][-1].follows(log["taken"][-1])
        trained.append(bench.work(CPU))
        # The weights of an update wait for the one before, and so for batches begun before that.
        free = max(len(used), (i // every - 1) * every)
        assert not any(trained[-1].follows(work) for work in log["scored"][free:])
        if len(begun) > 3:
            begun.popleft()()
            used.append(bench.work(CPU))
    assert all(work.follows(log["scored"][i]) for i, work in enumerate(used))
    for i, staged in enumerate(log["staged"]):
        assert log["taken"][i].follows(staged)
        assert trained[i * every].follows(staged)  # weights change when they have been read
        assert not i or staged.follows(log["taken"][i - 1])
    assert len(log["staged"]) == len(log["taken"]) == -(-len(BATCHES) // every)


def on_cuda(batch: Any) -> Any:
    return tuple(column.cuda() for column in batch)


def prepare() -> tuple[nn.Module, sb.scorers.Context]:
    torch.manual_seed(0)
    model = fresh_net().cuda()
    weighted = ExampleLosses(nn.CrossEntropyLoss(weight=torch.rand(3).cuda()))
    device = torch.device("cuda:0")
    return model, sb.scorers.Context(8, 16, model, weighted, device=device, rate=1 / 2)


def run_ahead(scorer: sb.scorers.AbstractScorer, ahead: int) -> Any:
    """Scores and final weights of a training; the batch's memory is let go at once."""
    model, context = prepare()
    running, found, begun = scorer.start(context), [], deque()
    for i, batch in enumerate(BATCHES):
        begun.append(running.begin(on_cuda(batch), None))
        if len(begun) > ahead:
            found.append(begun.popleft()())
        if i >= ahead:
            step(model, on_cuda(batch))
    found += [wait() for wait in begun]
    return [scores.tolist() for scores in found], model.state_dict()


def in_line(ahead: int, every: int) -> Any:
    """The same, of a copy that scores in line, trained on from the same batch on."""
    model, context = prepare()

    def begin_copy() -> sb.scorers.RunningScorer:
        return sb.scorers.Forward().start(replace(context, model=copy.deepcopy(model)))

    running, found = InLine(begin_copy, every), []
    for i, batch in enumerate(BATCHES):
        found.append(running.score(on_cuda(batch), None).tolist())
        if i >= ahead:
            step(model, on_cuda(batch))
    return found, model.state_dict()


@pytest.mark.cuda
@pytest.mark.parametrize("every", [1, 3])
def test_on_cuda_scores_are_those_of_a_copy_in_line(every):
    found, weights = run_ahead(
        sb.experimental.Pipelined(sb.scorers.Forward(), every, check=None), ahead=2
    )
    expected, others = in_line(2, every)
    assert found == expected
    assert same_tensors(weights, others)
