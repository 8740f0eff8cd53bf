"""A saved loader goes on where it stood, and only in a loader that was built alike."""

import io
from typing import Any

import pytest
import torch
from fixture_doors import (
    NotedSampler,
    Numbered,
    NumberedStream,
    fixture_data,
    fresh_net,
    same_tensors,
    select,
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
    "random, interludes": sb.random_backprop(1 / 2, schedule=sb.Schedule(plain_every=3)),
    "random, coins": sb.random_backprop(1 / 3, draw="bernoulli"),
    "selective": selective(1 / 3),
    "selective, warm-up": selective(1 / 3, warmup_epochs=2),
    "selective, interludes": selective(1 / 2, plain_every=3),
    "selective, coins": selective(1 / 3, draw="bernoulli"),
    "selective, fractions": selective(1 / 2, start=0.3, end=0.8),
    "selective, inference mode": selective(1 / 3, scorer=sb.Forward(inference_mode=True)),
    "selective, pipelined": selective(
        1 / 3, scorer=sb.Pipelined(sb.Forward(), every=2, ahead=2, check=None)
    ),
    "top": sb.Strategy("top", sb.Forward(), sb.Top(1 / 3)),
    "stale": sb.stale_sb(1 / 3, epochs=2),
    "stale, spread, coins": sb.stale_sb(1 / 3, epochs=3, spread=True, draw="bernoulli"),
    "stale, recorded": sb.stale_sb(1 / 3, spread=True, recorded=True),
    "predicted": sb.predicted_sb(1 / 3, predictor=sb.Average(depth=2)),
    "recorded": sb.recorded_sb(1 / 3, max_age=2),
    "recorded, rescored": sb.kakurenbo(0.5, confidence=0.5),
    "kath18": sb.kath18(schedule=sb.Schedule(gate=sb.VarianceGate(0.5, 2, threshold=1.1))),
    "proxy": sb.proxy_sb(make_small_model, make_optimizer, rate=1 / 3),
}


class Training:
    """A training that can be saved and taken up again, as a user would do it."""

    def __init__(self, strategy: sb.Strategy, *, seed: int = 1, workers: int = 0) -> None:
        self.model = fresh_net()
        self.sampler = NotedSampler(40)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.door = sb.SelectiveLoader(
            DataLoader(fixture_data(), 6, sampler=self.sampler, num_workers=workers),
            self.model,
            nn.CrossEntropyLoss(),
            strategy,
            epochs=5,
            with_selection=True,
            generator=torch.Generator().manual_seed(seed),
        )

    def epoch(self, stop: int | None = None) -> list[list[int]]:
        chosen = []
        for (inputs, targets), selection in self.door:
            chosen.append(selection.indices.tolist())
            self.optimizer.zero_grad()
            outputs = self.model(inputs)
            losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
            self.door.record(selection, losses)
            (selection.weights * losses).mean().backward()
            self.optimizer.step()
            if len(chosen) == stop:
                break
        return chosen

    def save(self) -> bytes:
        file = io.BytesIO()
        state = {
            "door": self.door.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.generator.get_state(),
            "stream": torch.get_rng_state(),
        }
        torch.save(state, file)
        return file.getvalue()

    def load(self, saved: bytes) -> None:
        state = torch.load(io.BytesIO(saved), weights_only=True)
        self.door.load_state_dict(state["door"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sampler.generator.set_state(state["sampler"])
        torch.set_rng_state(state["stream"])


@pytest.mark.parametrize("stop", [None, 2], ids=["at an epoch's end", "after a break"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(name, stop):
    whole = Training(STRATEGIES[name])
    whole.epoch()
    whole.epoch(stop)
    saved = whole.save()
    resumed = Training(STRATEGIES[name], seed=2)  # the seed is part of what is saved
    resumed.epoch(1)
    resumed.load(saved)
    assert resumed.door.stats == whole.door.stats
    assert resumed.door.progress == whole.door.progress
    rest = [whole.epoch() for _ in range(2)]
    stats = whole.door.stats
    weights = {name: tensor.clone() for name, tensor in whole.model.state_dict().items()}
    resumed.load(saved)
    assert [resumed.epoch() for _ in range(2)] == rest
    assert resumed.door.stats == stats
    assert same_tensors(resumed.model.state_dict(), weights)


@pytest.mark.parametrize("name", ["random, interludes", "selective, interludes"])
def test_what_workers_prefetched_is_not_part_of_the_state(name):
    states = []
    for workers in (0, 2):
        training = Training(STRATEGIES[name], workers=workers)
        training.epoch()
        for _ in training.door:
            states.append(training.door.state_dict())
            break
    assert repr(states[0]) == repr(states[1])


def test_a_state_is_taken_in_the_middle_of_an_epoch_too():
    training = Training(selective(1 / 2))
    batches = iter(training.door)
    next(batches)
    saved = training.save()
    kept = training.door.stats
    for _ in batches:
        pass
    training.load(saved)
    assert training.door.stats == kept


def test_loading_ends_the_pass_that_runs():
    training = Training(selective(1 / 2))
    saved = training.save()
    batches = iter(training.door)
    next(batches)
    training.load(saved)
    with pytest.raises(sb.LoaderError, match="another iteration"):
        next(batches)
    assert training.door.stats == sb.Stats()


def test_a_stream_goes_on_with_its_interludes():
    strategy = selective(plain_every=3)

    def door() -> sb.SelectiveLoader:
        return select(DataLoader(NumberedStream(28), 4), strategy)

    whole, resumed = door(), door()
    list(whole)
    resumed.load_state_dict(whole.state_dict())
    expected = [[batch[1].tolist() for batch in whole] for _ in range(2)]
    assert [[batch[1].tolist() for batch in resumed] for _ in range(2)] == expected


def test_a_state_is_not_changed_by_what_follows():
    training = Training(selective(1 / 2))
    training.epoch()
    state = training.door.state_dict()
    before = repr(state)
    training.epoch()
    assert repr(state) == before


def built(examples: int = 40, strategy: sb.Strategy | None = None, **options: Any) -> Any:
    return select(DataLoader(Numbered(examples), 6), strategy or selective(), **options)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (lambda: built(strategy=selective(1 / 3)), r"strategy=Strategy\(.*beta=1\.0.*beta=2"),
        (lambda: built(batch_size=4), "batch_size=6, this one has batch_size=4"),
        (lambda: built(examples=50), "examples=40, this one has examples=50"),
    ],
)
def test_a_state_of_another_loader_is_refused_with_the_difference_and_changes_nothing(
    other, difference
):
    door = other()
    list(door)
    before = repr(door.state_dict())
    with pytest.raises(sb.ConfigurationError, match=difference):
        door.load_state_dict(built().state_dict())
    assert repr(door.state_dict()) == before


def test_a_state_of_another_version_is_refused():
    door = built()
    with pytest.raises(sb.ConfigurationError, match="the state has version 0"):
        door.load_state_dict(door.state_dict() | {"version": 0})
