"""Batches, models and scorers to be scored beside a training."""

import multiprocessing
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from fixture_doors import fixture_data
from torch import nn
from torch.nn import functional

import selective_backprop as sb


def losses(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


BATCH = tuple(column[:16] for column in fixture_data().tensors)
BATCHES = [tuple(column[i : i + 8] for column in fixture_data().tensors) for i in range(0, 33, 3)]


def begin(scorer: sb.scorers.AbstractScorer, model: nn.Module | None, losses=losses) -> Any:
    return scorer.start(sb.scorers.Context(8, 16, model, losses, rate=1 / 2))


def step(model: nn.Module) -> None:
    """One update, of batch statistics too."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer.zero_grad()
    losses(model, BATCH).mean().backward()
    optimizer.step()


def run_ahead(running: sb.scorers.RunningScorer, model: nn.Module, steps: int) -> list[list[float]]:
    """Scores of a training that begins as many batches ahead as the scorer asks for."""
    found, begun = [], deque()
    for batch in BATCHES[:steps]:
        begun.append(running.begin(batch, None))
        if len(begun) > running.ahead:
            found.append(begun.popleft()().tolist())
            step(model)
    return found + [wait().tolist() for wait in begun]


def processes() -> set[int]:
    return {process.pid for process in multiprocessing.active_children()}


class Unpicklable(Exception):
    def __init__(self, one, other):
        super().__init__(one + other)


@dataclass(frozen=True)
class Counting(sb.scorers.AbstractScorer):
    """Scores by how many batches came before; fails where it is told to."""

    needs = sb.scorers.Needs()

    def start(self, context: sb.scorers.Context) -> "RunningCounting":
        return RunningCounting()


class RunningCounting(sb.scorers.RunningScorer):
    def __init__(self) -> None:
        self.count = torch.zeros(())

    def score(self, batch, indices):
        if batch[1] == "wrong":
            raise ArithmeticError("that is wrong")
        if batch[1] == "strange":
            raise Unpicklable("that is", " strange")
        self.count += 1
        return self.count.expand(len(batch[0]))

    def state_dict(self):
        return {"count": self.count.clone()}

    def load_state_dict(self, state):
        self.count = state["count"].clone()


def of(rows: int, name: str = "right") -> tuple[torch.Tensor, str]:
    return torch.zeros(rows, 100), name


def counting(**options: Any) -> Any:
    model = nn.Linear(1, 1)
    return begin(sb.scorers.Pipelined(Counting(), 3, **({"check": None} | options)), model)
