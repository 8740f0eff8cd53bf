"""A timed loop takes real batches and leaves out what an epoch's start and cold caches take."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from fixture_clock import Clock
from fixture_cuda import no_waiting

from selective_backprop import Stopwatch
from selective_backprop_lab.bench import workload
from selective_backprop_lab.bench.harness import strategies_of
from selective_backprop_lab.bench.timed_loops import TimedLoop, TimedLoops


def timed_loop(length: int, batches: int) -> tuple[TimedLoop, list[int]]:
    """Epochs of so many batches, of which the first takes 10 s and others 1, and steps of 2."""
    clock, trained = Clock(), []

    def epoch() -> Iterator[int]:
        for number in range(batches):
            clock.now += 1.0 if number else 10.0
            yield number

    def train(batch: int) -> None:
        clock.now += 2.0
        trained.append(batch)

    return TimedLoop(epoch, train, Stopwatch(clock=clock), clock, length=length), trained


def test_an_epoch_s_first_batch_and_a_call_s_first_are_trained_on_but_not_charged():
    one, trained = timed_loop(6, 6)
    for _ in range(4):
        spent = one(2)
        assert (spent.seconds, spent.steps) == (6.0, 2)
    # Each call takes three batches, and the first of an epoch besides.
    assert trained == [0, 1, 2, 3, 4, 5] * 2 + [0, 1, 2]
    assert one.starts == [10.0] * 3


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_of_short_epochs_everything_is_charged(batches):
    one, trained = timed_loop(batches, batches)
    spent = [one(batches) for _ in range(3)]
    assert one.starts == []
    assert len(trained) == 3 * (batches + 1)
    assert max(each.seconds for each in spent) >= 10.0


def test_epochs_without_a_batch_are_passed_over():
    numbers = iter(range(9))

    def epoch() -> list[int]:
        number = next(numbers)
        return [number] if number % 3 == 2 else []

    trained: list[int] = []
    clock = Clock()
    TimedLoop(epoch, trained.append, Stopwatch(clock=clock), clock, length=1 / 3)(1)
    assert trained == [2, 5]


@pytest.mark.cuda
@pytest.mark.parametrize(
    "name", ["traditional", "random-backprop", "recorded-sb", "selective-backprop"]
)
def test_on_cuda_no_loop_makes_the_host_wait_within_an_epoch(name, monkeypatch):
    monkeypatch.setattr(workload, "WINDOWS", 8)
    recipe = replace(workload.bench_recipe("1x8x8/3"), model="linear", batch_size=8)
    made = workload.make_workload(recipe, rate=2 / 3, device=torch.device("cuda"))
    loops = TimedLoops(made, time.perf_counter)
    strategy = strategies_of(made.rate, made.scorers)[name]
    loop = loops.traditional() if name == "traditional" else loops.selecting(strategy)
    loop(1)  # 4 batches, of at least 8 that an epoch has
    with no_waiting():
        assert loop(1).steps == 1  # 3 more
