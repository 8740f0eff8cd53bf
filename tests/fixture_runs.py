"""Runs that never happened: records made up for tests, with numbers that can be checked by hand."""

from collections.abc import Sequence
from typing import Any

from selective_backprop.lab.records import Header, Point, Run

PHASES = {"load": 0.5, "score": 1.0, "select": 0.1, "forward": 2.0, "backward": 4.0, "step": 0.25}


def fixture_header(arm: str = "traditional", seed: int = 0, **changes: Any) -> Header:
    fields: dict[str, Any] = {
        "config": {"data": "fixture-data", "model": "fixture-net", "epochs": 10, "rate": 0.5},
        "arm": arm,
        "seed": seed,
        "code_version": "git 0123456789ab",
        "versions": {"python": "3.11.0", "torch": "2.8.0"},
        "hardware": {"cpu": "Fixture CPU", "cores": 2, "threads": 1, "memory_gib": 8.0},
        "command": "selective-backprop compare",
        "started": "2020-01-01T00:00:00+00:00",
    }
    return Header(**fields | changes)


def fixture_point(progress: float = 1.0, error: float = 5.0, **changes: Any) -> Point:
    fields: dict[str, Any] = {
        "progress": progress,
        "epoch": 10.0 * progress,
        "cost": 10.0 * progress,
        "seconds": 20.0 * progress,
        "cpu_seconds": 18.0 * progress,
        "updates": round(100 * progress),
        "candidates": round(6400 * progress),
        "loaded": round(6400 * progress),
        "scored": round(6400 * progress),
        "trained": round(3200 * progress),
        "test_error": error,
        "test_loss": 0.2,
        "train_loss": 0.1,
        "rate": 0.5,
        "phases": {phase: seconds * progress for phase, seconds in PHASES.items()},
    }
    return Point(**fields | changes)


def fixture_run(
    arm: str = "traditional",
    seed: int = 0,
    errors: Sequence[float] = (50.0, 20.0, 10.0, 5.0),
    *,
    cost: float = 10.0,
    seconds: float = 20.0,
    finished: bool = True,
    upto: int | None = None,
    config: dict[str, Any] | None = None,
    **header: Any,
) -> Run:
    """Make up a run that is evaluated at equal steps, with the given errors.

    Cost and seconds are those of the whole run; `upto` cuts it after so many evaluations.
    """
    shares = [(i + 1) / len(errors) for i in range(len(errors))]
    points = [
        fixture_point(share, error, cost=cost * share, seconds=seconds * share)
        for share, error in zip(shares, errors, strict=True)
    ]
    described = fixture_header(arm, seed, **header)
    return Run(
        header=fixture_header(arm, seed, **header | {"config": described.config | (config or {})}),
        points=tuple(points[:upto]),
        end={"status": "finished", "meters": {}} if finished else None,
    )


def fixture_seeds(arm: str, finals: Sequence[float], **changes: Any) -> list[Run]:
    """Make up one run per final error, which falls to it from 50 by way of 20."""
    return [
        fixture_run(arm, seed, (50.0, 20.0, final), **changes) for seed, final in enumerate(finals)
    ]
