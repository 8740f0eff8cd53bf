"""What scoring and selecting cost on this machine, as ratios within the rounds of one run."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import selective_backprop as sb
from selective_backprop.guide._rounds import Median, summarise, take_rounds
from selective_backprop.guide._spending import Arm, Spent
from selective_backprop.lab.bench.cases import FULL_FORWARD, Contestants
from selective_backprop.lab.bench.workload import Specimen
from selective_backprop.lab.records.provenance import code_version, hardware, versions
from selective_backprop.lab.records.schema import utc_now

LEAST = 6  # rounds, however few seconds there are: fewer have no 95 % interval
BASELINE = "traditional"
Round = Mapping[str, Spent]


@dataclass(frozen=True)
class ScorerCost:
    """What a scorer costs and what it is worth.

    Attributes:
        cost: of scoring, in eval forwards over the same candidates, in the training's precision.
        of_full: of scoring, in eval forwards over the same candidates in full precision.
        correlation: Spearman's, with exact scores.
        overlap: share of the candidates with the highest exact scores that it finds.
    """

    cost: Median
    of_full: Median
    correlation: float
    overlap: float


@dataclass(frozen=True)
class StrategyCost:
    """What an epoch of a strategy costs.

    Attributes:
        relative: to traditional training's epoch.
        limit: what it cannot go below, relative to traditional training's epoch: the forward
            passes over what it scores, ordinary steps on what it keeps, and its own loading.
        over_limit: its epoch, relative to that limit.
        phases: of an epoch, relative to the whole of traditional training's; they add up to
            about `relative`, and to more where looking at phases makes a GPU wait.
    """

    relative: Median
    limit: Median
    over_limit: Median
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Findings:
    """All that `bench` found out.

    Attributes:
        config: what was measured, and how.
        rounds: how many there were.
        step: milliseconds of each phase per 1,000 examples: `eval forward`, and `forward`,
            `backward` and `step` of training.
        backward: a backward pass, in training forwards.
        scorers: by name.
        strategies: by name.
        remarks: what has to be said of a scorer, or why it is missing.
    """

    config: Mapping[str, Any]
    rounds: int
    step: Mapping[str, float]
    backward: Median
    scorers: Mapping[str, ScorerCost]
    strategies: Mapping[str, StrategyCost]
    remarks: Mapping[str, str]

    def record(self, command: str) -> dict[str, Any]:
        """Return what a JSON file holds: the findings, and what they mean anything by."""
        return {
            "command": command,
            "written": utc_now(),
            "code_version": code_version(),
            "versions": versions(),
            "hardware": hardware(),
            **asdict(self),
        }

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "Findings":
        """Return the findings that `record` made a record of."""
        scorers = {
            name: ScorerCost(
                Median(**each["cost"]),
                Median(**each["of_full"]),
                each["correlation"],
                each["overlap"],
            )
            for name, each in record["scorers"].items()
        }
        ratios = ("relative", "limit", "over_limit")
        strategies = {
            name: StrategyCost(*(Median(**each[key]) for key in ratios), phases=each["phases"])
            for name, each in record["strategies"].items()
        }
        return cls(
            config=record["config"],
            rounds=record["rounds"],
            step=record["step"],
            backward=Median(**record["backward"]),
            scorers=scorers,
            strategies=strategies,
            remarks=record["remarks"],
        )


def run_rounds(
    arms: Mapping[str, Arm],
    *,
    seconds: float,
    tell: Callable[[list[Round]], None],
    now: Callable[[], float] = time.perf_counter,
) -> list[Round]:
    """Run all arms in interleaved rounds, until the ratios are known or the time is up.

    Args:
        arms: what to run.
        seconds: of wall time, after which no further round begins once there are `LEAST`.
        tell: told of the rounds so far.
        now: returns wall seconds.
    """
    rounds: list[Round] = []
    begun = now()
    for found in take_rounds(arms):
        rounds.append({name: spent for part in found.values() for name, spent in part.items()})
        tell(rounds)
        if len(rounds) >= LEAST and (now() - begun >= seconds or _known(rounds)):
            break
    return rounds


def conclude(
    specimen: Specimen, found: Contestants, rounds: Sequence[Round], *, clock: str
) -> Findings:
    """Reduce rounds to ratios.

    Args:
        specimen: what was measured on.
        found: what was timed.
        rounds: at least one.
        clock: which seconds were counted, in words.
    """
    scale = 1e6 / specimen.examples
    steps = _median(rounds, lambda spent: spent["step alone"].steps)
    rows = steps * specimen.recipe.batch_size
    phases = {
        phase: 1e6 / rows * _median(rounds, _phase("step alone", phase))
        for phase in ("forward", "backward", "step")
    }
    alone = ("forward alone", FULL_FORWARD, "step alone")
    names = [name for name in rounds[0] if name not in alone]
    return Findings(
        config={
            "data": specimen.data.name,
            "image": list(specimen.data.train_images.shape[1:]),
            "classes": specimen.data.classes,
            "model": specimen.recipe.model,
            "precision": str(specimen.precision),
            "batch_size": specimen.recipe.batch_size,
            "scored_at_once": specimen.at_once,
            "rate": specimen.rate,
            "window": specimen.window,
            "examples": specimen.examples,
            "device": str(specimen.device),
            "clock": clock,
        },
        rounds=len(rounds),
        step={"eval forward": scale * _median(rounds, _total("forward alone")), **phases},
        backward=_ratio(rounds, _phase("step alone", "backward"), _phase("step alone", "forward")),
        scorers={name: _scorer(rounds, name, found.agreements[name]) for name in found.scorers},
        strategies={
            name: _strategy(rounds, name, specimen)
            for name in names
            if not name.startswith("scorer ")
        },
        remarks=dict(found.remarks),
    )


def _scorer(rounds: Sequence[Round], name: str, agreement: sb.scorers.Agreement) -> ScorerCost:
    full = FULL_FORWARD if FULL_FORWARD in rounds[0] else "forward alone"
    cost, of_full = (
        _ratio(rounds, _total(f"scorer {name}"), _total(forward))
        for forward in ("forward alone", full)
    )
    return ScorerCost(cost, of_full, agreement.correlation, agreement.overlap)


def _strategy(rounds: Sequence[Round], name: str, specimen: Specimen) -> StrategyCost:
    def limit(spent: Round) -> float:
        mine, step = spent[name], spent["step alone"]
        forwards = mine.scored / specimen.examples * spent["forward alone"].seconds
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
