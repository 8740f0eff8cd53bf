"""Scoring on a second stream: what waits for what, and on CUDA that the host never does."""

import copy
import sys
from collections import Counter, deque
from dataclasses import replace
from typing import Any

import pytest
import torch
from fixture_loaders import fresh_net, same_tensors
from fixture_pipelined import BATCHES, InLine, losses, step
from torch import nn

import selective_backprop as sb
from selective_backprop._batches.losses import ExampleLosses
from selective_backprop.experimental import _pipelined
from selective_backprop.experimental._pipelined import StreamBackend

CUDA = torch.device("cuda:0")


class Work:
    """What the current stream does next, on a made-up device: after so much of each stream."""

    def __init__(self) -> None:
        stream = torch.cuda.current_stream()
        stream.clock += 1
        self.stream, self.number = stream.number, stream.clock
        self.done = stream.seen | Counter({self.stream: self.number})

    def follows(self, other: "Work") -> bool:
        return self.done[other.stream] >= other.number


@pytest.mark.cuda
@pytest.mark.skipif("made_up_cuda" not in sys.modules, reason="a real device tells no waits")
@pytest.mark.parametrize("every", [1, 3])
def test_every_step_waits_for_what_it_needs_and_training_for_no_batch_in_flight(every, monkeypatch):
    trained, used, begun, log = [], [], deque(), {"staged": [], "taken": [], "scored": []}
    (model, context), update = prepare(), _pipelined.update

    def noting(twin: nn.Module, source: nn.Module) -> None:
        log["staged" if source is model else "taken"].append(Work())
        update(twin, source)

    def noted_losses(model: nn.Module, batch: Any) -> torch.Tensor:
        log["scored"].append(Work())
        return losses(model, batch)

    monkeypatch.setattr(_pipelined, "update", noting)
    context = replace(context, losses=noted_losses)
    backend = StreamBackend(sb.scorers.Forward(), context, model, CUDA)
    for i, batch in enumerate(BATCHES):
        before = Work()  # such as the copy of the batch to the device
        begun.append(backend.begin(on_cuda(batch), None, renew=i % every == 0))
        assert log["scored"][-1].follows(before)
        assert log["scored"][-1].follows(log["taken"][-1])
        trained.append(Work())
        # The weights of an update wait for the one before, and so for batches begun before that.
        free = max(len(used), (i // every - 1) * every)
        assert not any(trained[-1].follows(work) for work in log["scored"][free:])
        if len(begun) > 3:
            begun.popleft()()
            used.append(Work())
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
    return model, sb.scorers.Context(8, 16, model, weighted, device=CUDA, rate=1 / 2)


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
