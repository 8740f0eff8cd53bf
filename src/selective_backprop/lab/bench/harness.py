"""What scoring and selecting cost on this machine, as ratios within the rounds of one run."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selective_backprop.guide._rounds import Median, summarise, take_rounds
from selective_backprop.guide._spending import Arm, Spent
from selective_backprop.lab.bench.cases import FORWARD, FULL_FORWARD, STEP, Cases
from selective_backprop.lab.bench.workload import Workload

LEAST = 6  # rounds, however few seconds there are: fewer have no 95 % interval
BASELINE = "traditional"
CPU_CLOCK = "CPU seconds of the process"
GPU_CLOCK = "wall seconds"
Round = Mapping[str, Spent]


@dataclass(frozen=True)
class ScorerCost:
    """What a scorer costs, and how well its scores agree with exact ones."""

    cost: Median  # in eval forwards over the same candidates, in the training's precision
    of_full: Median  # in eval forwards in full precision
    correlation: float  # Spearman's
    overlap: float  # share of the candidates with the highest exact scores that it finds


@dataclass(frozen=True)
class StrategyCost:
    """What an epoch of a strategy costs, relative to traditional training's.

    The limit is what it cannot go below: the forward passes over what it scores, ordinary steps on
    what it keeps, and its own loading. The phases add up to about `relative`, and to more where
    timing each of them makes a GPU wait.
    """

    relative: Median
    limit: Median
    over_limit: Median  # relative to the limit
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Findings:
    """All that `bench` found out."""

    config: Mapping[str, Any]  # what was measured, and how
    rounds: int
    step: Mapping[str, float]  # milliseconds of each phase per 1,000 examples
    backward: Median  # a backward pass, in training forwards
    scorers: Mapping[str, ScorerCost]
    strategies: Mapping[str, StrategyCost]
    remarks: Mapping[str, str]  # on a scorer, or why it is missing

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "Findings":
        """Return the findings that a record holds, besides what it says of where they come from."""

        def medians(found: Mapping[str, Any]) -> dict[str, Any]:
            return {
                name: Median(**value) if isinstance(value, dict) and "median" in value else value
                for name, value in found.items()
            }

        found = medians({name: record[name] for name in cls.__dataclass_fields__})
        for name, kind in (("scorers", ScorerCost), ("strategies", StrategyCost)):
            found[name] = {each: kind(**medians(costs)) for each, costs in found[name].items()}
        return cls(**found)


def run_rounds(
    arms: Mapping[str, Arm],
    *,
    seconds: float,
    tell: Callable[[list[Round]], None],
    now: Callable[[], float] = time.perf_counter,
) -> list[Round]:
    """Run all arms in interleaved rounds, until the ratios are known or the time is up.

    No further round begins after so many wall `seconds`, once there are `LEAST`. After each,
    `tell` is called with the rounds so far.
    """
    rounds: list[Round] = []
    begun = now()
    for found in take_rounds(arms):
        rounds.append({name: spent for part in found.values() for name, spent in part.items()})
        tell(rounds)
        if len(rounds) >= LEAST and (now() - begun >= seconds or _known(rounds)):
            break
    return rounds


def conclude(workload: Workload, cases: Cases, rounds: Sequence[Round]) -> Findings:
    """Reduce rounds, at least one, to ratios."""
    scale = 1e6 / workload.examples
    rows = workload.recipe.batch_size * _median(rounds, lambda spent: spent[STEP].steps)
    phases = {
        phase: 1e6 / rows * _median(rounds, _phase(STEP, phase))
        for phase in ("forward", "backward", "step")
    }
    full = FULL_FORWARD if FULL_FORWARD in rounds[0] else FORWARD
    alone = {FORWARD, FULL_FORWARD, STEP, *(f"scorer {name}" for name in cases.agreements)}
    return Findings(
        config={
            "data": workload.data.name,
            "image": list(workload.data.train_images.shape[1:]),
            "classes": workload.data.classes,
            "model": workload.recipe.model,
            "precision": str(workload.precision),
            "batch_size": workload.recipe.batch_size,
            "scored_at_once": workload.at_once,
            "rate": workload.rate,
            "window": workload.window,
            "examples": workload.examples,
            "device": str(workload.device),
            "clock": GPU_CLOCK if workload.device.type == "cuda" else CPU_CLOCK,
        },
        rounds=len(rounds),
        step={"eval forward": scale * _median(rounds, _total(FORWARD)), **phases},
        backward=_ratio(rounds, _phase(STEP, "backward"), _phase(STEP, "forward")),
        scorers={
            name: ScorerCost(
                _ratio(rounds, _total(f"scorer {name}"), _total(FORWARD)),
                _ratio(rounds, _total(f"scorer {name}"), _total(full)),
                agreement.correlation,
                agreement.overlap,
            )
            for name, agreement in cases.agreements.items()
        },
        strategies={
            name: _strategy(rounds, name, workload) for name in rounds[0] if name not in alone
        },
        remarks=dict(cases.remarks),
    )


def _strategy(rounds: Sequence[Round], name: str, workload: Workload) -> StrategyCost:
    def limit(spent: Round) -> float:
        mine, step = spent[name], spent[STEP]
        forwards = mine.scored / workload.examples * spent[FORWARD].seconds
        return forwards + mine.steps / step.steps * step.seconds + mine.phases.get("load", 0.0)

    whole = _median(rounds, _total(BASELINE))
    phases = dict.fromkeys(phase for spent in rounds for phase in spent[name].phases)
    return StrategyCost(
        relative=_ratio(rounds, _total(name), _total(BASELINE)),
        limit=_ratio(rounds, limit, _total(BASELINE)),
        over_limit=_ratio(rounds, _total(name), limit),
        phases={phase: _median(rounds, _phase(name, phase)) / whole for phase in phases},
    )


def _known(rounds: Sequence[Round]) -> bool:
    names = [name for name in rounds[0] if name != BASELINE]
    return all(_ratio(rounds, _total(name), _total(BASELINE)).known for name in names)


def _ratio(
    rounds: Sequence[Round], above: Callable[[Round], float], below: Callable[[Round], float]
) -> Median:
    return summarise([above(spent) / max(below(spent), 1e-9) for spent in rounds])


def _median(rounds: Sequence[Round], of: Callable[[Round], float]) -> float:
    return statistics.median(of(spent) for spent in rounds)


def _total(name: str) -> Callable[[Round], float]:
    return lambda spent: spent[name].seconds


def _phase(name: str, phase: str) -> Callable[[Round], float]:
    return lambda spent: spent[name].phases.get(phase, 0.0)
