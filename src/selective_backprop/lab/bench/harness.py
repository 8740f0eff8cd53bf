"""What scoring and selecting cost on this machine: the guide's timing, with every scorer."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from selective_backprop.guide._advise import DIVERGED
from selective_backprop.guide._budget import Budget
from selective_backprop.guide._forecast import Ingredients, Round
from selective_backprop.guide._inquiry import Found, Inquiry, are_known
from selective_backprop.guide._mixes import BASELINE, Mix, list_mixes
from selective_backprop.guide._rounds import Median, summarise, take_rounds
from selective_backprop.guide._spending import Spent
from selective_backprop.guide._timed_loops import TimedLoops
from selective_backprop.lab.bench.workload import WINDOWS, Workload

LEAST = 6  # rounds, however few seconds there are: fewer have no 95 % interval
KNOWN = 0.01  # half-width of an interval, relative to its median, that is narrow enough
EXACT = "scorer forward"


@dataclass(frozen=True)
class ScorerCost:
    """What a scorer costs, and how well its scores agree with exact ones."""

    cost: Median  # in exact scoring of the same candidates, in the training's precision
    of_full: Median  # in exact scoring in full precision
    correlation: float  # Spearman's; NaN where no exact score is finite
    overlap: float  # share of the candidates with the highest exact scores that it finds


@dataclass(frozen=True)
class StrategyCost:
    """What an epoch of a strategy costs, relative to traditional training's.

    The limit is what it cannot go below: exact scoring of what it scores, ordinary steps on what it
    keeps, and its own loading. The phases add up to about `relative`.
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


def measure(
    workload: Workload,
    names: Sequence[str],
    *,
    seconds: float,
    tell: Callable[[int, float], None],
    now: Callable[[], float] = time.perf_counter,
) -> Findings:
    """Time training and the named scorers, until the ratios are known or the time is up.

    No further round begins after so many wall `seconds`, once there are `LEAST`. After each, `tell`
    is called with the number of rounds and the seconds so far.
    """
    begun: list[float] = []

    def enough(rounds: Sequence[Round]) -> bool:
        begun.append(now())
        spent = begun[-1] - begun[0]
        tell(len(rounds), spent)
        known = are_known(rounds, rounds[0], within=KNOWN)
        return len(rounds) >= LEAST and (spent >= seconds or known)

    # Whatever is named, exact scoring is timed: it is the measure of the others.
    timed = {
        name: scorer
        for name, scorer in workload.scorers.items()
        if name in {"forward", "fp32", *names}
    }
    inquiry = Inquiry(workload.subject, Budget(math.inf), timed, looks=False, enough=enough)
    return conclude(workload, inquiry.run(), names)


def time_steps(workload: Workload, rounds: int) -> list[Spent]:
    """Return what a few ordinary training steps took, round by round."""
    device = workload.subject.device
    on_gpu = device is not None and device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    loop = TimedLoops(workload.subject, clock).traditional()
    found = take_rounds({"steps": lambda: loop(WINDOWS)})
    return [each["steps"] for each in islice(found, rounds)]


def conclude(workload: Workload, found: Found, names: Sequence[str]) -> Findings:
    """Reduce rounds, at least one, to ratios."""
    subject, rounds, data = workload.subject, found.rounds, workload.data
    full = "scorer fp32" if "scorer fp32" in rounds[0] else EXACT
    trials = {name: found.trials[name] for name in names}
    agreements = {
        name: trial.agreement for name, trial in trials.items() if trial.agreement is not None
    }
    remarks = {name: trial.remark for name, trial in trials.items() if trial.remark is not None}
    if any(math.isnan(agreement.overlap) for agreement in agreements.values()):
        remarks["agreement"] = DIVERGED
    cheap = {name: found.cheap[name] for name in agreements if name != "forward"}
    steps = [_step(each, subject.batch_size) for each in rounds]
    mixes = list_mixes(subject.rate, cheap, indexed=subject.knows_examples, redundancy=None)
    return Findings(
        config={
            "data": data.name,
            "image": list(data.train_images.shape[1:]),
            "classes": data.classes,
            "model": workload.recipe.model,
            "precision": str(workload.recipe.precision),
            "batch_size": subject.batch_size,
            "scored_at_once": workload.at_once,
            "rate": subject.rate,
            "window": subject.window,
            "examples": subject.examples,
            "device": str(subject.device),
            "clock": found.clock,
        },
        rounds=len(rounds),
        step={
            "eval forward": 1e6 * statistics.median(_per_row(each, EXACT) for each in rounds),
            **{
                phase: 1e6 * statistics.median(step[phase] for step in steps)
                for phase in ("forward", "backward", "step")
            },
        },
        backward=_ratio([step["backward"] for step in steps], [step["forward"] for step in steps]),
        scorers={
            name: ScorerCost(
                *(
                    _ratio(
                        [_per_row(each, f"scorer {name}") for each in rounds],
                        [_per_row(each, whole) for each in rounds],
                    )
                    for whole in (EXACT, full)
                ),
                agreement.correlation,
                agreement.overlap,
            )
            for name, agreement in agreements.items()
        },
        strategies=_strategies(mixes, found.ingredients, rounds),
        remarks=remarks,
    )


def _strategies(
    mixes: Mapping[str, Mix], ingredients: Ingredients, rounds: Sequence[Round]
) -> dict[str, StrategyCost]:
    plain = [sum(ingredients.epoch(mixes[BASELINE], each).values()) for each in rounds]
    costs = {}
    for name, mix in mixes.items():
        epochs = [ingredients.epoch(mix, each) for each in rounds]
        for epoch in epochs:
            epoch["other"] = epoch.get("other", 0.0) + epoch.pop("start", 0.0)
        seconds = [sum(epoch.values()) for epoch in epochs]
        limits = [
            ingredients.scored(mix) * _per_row(each, EXACT)
            + ingredients.trained(mix) * sum(_step(each, ingredients.batch_size).values())
            + epoch.get("load", 0.0)
            for each, epoch in zip(rounds, epochs, strict=True)
        ]
        phases = dict.fromkeys(phase for epoch in epochs for phase in epoch)
        costs[name] = StrategyCost(
            relative=_ratio(seconds, plain),
            limit=_ratio(limits, plain),
            over_limit=_ratio(seconds, limits),
            phases={
                phase: statistics.median(epoch.get(phase, 0.0) for epoch in epochs)
                / max(statistics.median(plain), 1e-9)
                for phase in phases
            },
        )
    return costs


def _ratio(above: Sequence[float], below: Sequence[float]) -> Median:
    pairs = zip(above, below, strict=True)
    return summarise([one / max(other, 1e-9) for one, other in pairs])


def _per_row(found: Round, arm: str) -> float:
    """Return the seconds in which a scorer scores a candidate."""
    return found[arm].seconds / found[arm].scored


def _step(found: Round, rows: int) -> dict[str, float]:
    """Return the seconds of each phase of an ordinary training step of so many rows, per row."""
    plain = found[BASELINE]
    seconds = {phase: each for phase, each in plain.phases.items() if phase != "load"}
    return {phase: each / (plain.steps * rows) for phase, each in seconds.items()}
