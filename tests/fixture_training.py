"""A training that can be saved and taken up again, with strategies of every kind."""

import io
from collections.abc import Callable
from typing import Any

import torch
from fixture_doors import (
    NotedSampler,
    bits,
    fixture_data,
    fresh_net,
    same_tensors,
    selective,
)
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb


def make_small_model() -> nn.Module:
    return nn.Linear(2, 3)


def make_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


STRATEGIES = {
    "traditional": sb.traditional(),
    "random": sb.random_backprop(1 / 3),
    "random, cadence": sb.random_backprop(1 / 2, schedule=sb.Schedule(plain_every=3)),
    "random, coins": sb.random_backprop(1 / 3, draw="bernoulli"),
    "selective": selective(1 / 3),
    "selective, warm-up": selective(1 / 3, warmup_epochs=2),
    "selective, cadence": selective(1 / 2, plain_every=3),
    "selective, coins": selective(1 / 3, draw="bernoulli"),
    "selective, fractions": selective(1 / 2, start=0.3, end=0.8),
    "selective, inference mode": selective(1 / 3, scorer=sb.scorers.Forward(inference_mode=True)),
    "selective, pipelined": selective(
        1 / 3, scorer=sb.scorers.Pipelined(sb.scorers.Forward(), every=2, ahead=2, check=None)
    ),
    "top": sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(1 / 3)),
    "stale": sb.stale_sb(1 / 3, epochs=2),
    "stale, spread, coins": sb.stale_sb(1 / 3, epochs=3, spread=True, draw="bernoulli"),
    "stale, recorded": sb.stale_sb(1 / 3, spread=True, recorded=True),
    "predicted": sb.predicted_sb(1 / 3, predictor=sb.scorers.Average(depth=2)),
    "recorded": sb.recorded_sb(1 / 3, max_age=2),
    "recorded, rescored": sb.kakurenbo(0.5, confidence=0.5),
    "kath18": sb.kath18(schedule=sb.Schedule(gate=sb.VarianceGate(0.5, 2, threshold=1.1))),
    "kath18, by loss": sb.kath18(
        2.0,
        measure="loss",
        bias=0.0,
        schedule=sb.Schedule(gate=sb.VarianceGate(0.5, 2, threshold=1.05)),
    ),
    "gated, paid": sb.Strategy(
        "gated",
        sb.scorers.Excess(sb.scorers.ReferenceLosses(torch.zeros(40)), sb.scorers.Forward()),
        sb.selectors.Proportional(2.0, 0.0),
        sb.Schedule(gate=sb.VarianceGate(0.5, 2, threshold=1.05)),
    ),
    "proxy": sb.proxy_sb(make_small_model, make_optimizer, rate=1 / 3),
}


class Training:
    """A training that can be saved and taken up again, as a user would do it."""

    def __init__(
        self,
        strategy: sb.Strategy,
        *,
        seed: int = 1,
        workers: int = 0,
        sampler: Any = None,
        leftovers: str = "carry",
    ) -> None:
        self.model = fresh_net()
        self.sampler = NotedSampler(40) if sampler is None else sampler
        self.generator = getattr(self.sampler, "generator", None) or torch.Generator()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.door = sb.SelectiveLoader(
            DataLoader(fixture_data(), 6, sampler=self.sampler, num_workers=workers),
            self.model,
            nn.CrossEntropyLoss(),
            strategy,
            epochs=5,
            leftovers=leftovers,
            with_selection=True,
            generator=torch.Generator().manual_seed(seed),
        )

    def epoch(
        self, stop: int | None = None, after: Callable[[], object] = lambda: None
    ) -> list[list[int]]:
        """Train for an epoch, or `stop` batches of it, and return the indices of each batch."""
        chosen = []
        for (inputs, targets), selection in self.door:
            chosen.append(selection.indices.tolist())
            self.optimizer.zero_grad()
            outputs = self.model(inputs)
            losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
            self.door.record(selection, losses, (outputs, targets))
            (selection.weights * losses).mean().backward()
            self.optimizer.step()
            after()
            if len(chosen) == stop:
                break
        return chosen

    def save(self) -> bytes:
        file = io.BytesIO()
        state = {
            "door": self.door.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.generator.get_state(),
            "stream": torch.get_rng_state(),
        }
        torch.save(state, file)
        return file.getvalue()

    def load(self, saved: bytes) -> None:
        state = torch.load(io.BytesIO(saved), weights_only=True)
        self.door.load_state_dict(state["door"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["sampler"])
        torch.set_rng_state(state["stream"])


def outcome(training: Training) -> tuple[dict, dict, sb.Stats]:
    """Weights, what the door remembers, and its counters."""
    parts = bits(training.door.state_dict()["parts"])
    weights = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    return weights, parts, training.door.stats


def check_batches(make: Callable[[int], Training], *, thoroughly: bool = False) -> None:
    """Save within the second of three epochs, and go on from each state in a new training.

    Args:
        make: returns a new training, from a seed that what is saved replaces.
        thoroughly: whether after each batch, which takes minutes for all strategies, or one in the
            middle and the last.
    """
    whole, saves = make(1), []
    batches = [whole.epoch(), whole.epoch(after=lambda: saves.append(whole.save())), whole.epoch()]
    weights, parts, stats = outcome(whole)
    assert saves
    count = len(saves)
    for handed_out in range(1, count + 1) if thoroughly else {(count + 1) // 2, count}:
        saved = saves[handed_out - 1]
        resumed = make(2)
        resumed.load(saved)
        assert resumed.door.next_epoch == 1
        rest = [resumed.epoch() for _ in range(2)]
        assert rest == [batches[1][handed_out:], batches[2]]
        assert same_tensors(resumed.model.state_dict(), weights)
        assert outcome(resumed)[1:] == (parts, stats)
