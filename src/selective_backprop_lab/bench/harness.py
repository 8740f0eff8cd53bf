"""Measure what scoring and selecting cost on this machine, with real loops that take turns."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import selective_backprop as sb
from selective_backprop_lab.bench.rounds import LEAST, enough_rounds, summarise, take_rounds
from selective_backprop_lab.bench.timed_loops import ScoringTrial, Spent, TimedLoop, TimedLoops
from selective_backprop_lab.bench.workload import WINDOWS, Workload
from selective_backprop_lab.recipe import Precision

SCORED = 2  # training batches per round for strategies that score
BASELINE, EXACT = "traditional", "scorer forward"
DIVERGED = (
    "the model diverged in its warm-up: its losses or their gradients are not finite. Lower the "
    "learning rate"
)
Round = Mapping[str, Spent]
Row = dict[str, Any]


# The findings of `bench`, as in its record. A ratio is a dictionary of a `Median`.
# config: what was measured, and how. rounds: their number. remarks: warnings on scorers.
# step: milliseconds of each phase per 1,000 examples. backward: backward pass / training forward.
# scorers: cost, relative to exact scoring of the same candidates in the training's precision;
#   of_full, relative to exact scoring in full precision; overlap and Spearman's correlation with
#   exact scores, NaN if no exact score is finite.
# strategies: relative, an epoch / an epoch of traditional training; phases, which add up to about
#   the same; limit, the least that it can cost: exact scoring of what it scores, ordinary steps on
#   what it keeps, and its own loading; over_limit, an epoch / this limit.
Findings = Mapping[str, Any]


def measure(
    workload: Workload,
    *,
    seconds: float,
    tell: Callable[[int, float], None],
    now: Callable[[], float] = time.perf_counter,
) -> Findings:
    """Time training and all scorers, for as many rounds as `enough_rounds` takes."""
    clock, words = _clock(workload)
    timed_loops = TimedLoops(workload, clock)
    plain = timed_loops.traditional()
    for _ in range(max(1, workload.examples // workload.batch_size)):
        plain(1)  # the losses of an untrained model would not be typical
    scorers = workload.scorers
    trials = {
        name: timed_loops.scoring(scorer, workload.scored_in(name))
        for name, scorer in scorers.items()
    }
    works = {
        name: scorers[name]
        for name, trial in trials.items()
        if trial.run is not None and name not in set(Precision)
    }
    strategies = strategies_of(workload.rate, works)
    loops: dict[str, TimedLoop] = {
        name: plain if name == BASELINE else timed_loops.selecting(strategy)
        for name, strategy in strategies.items()
    }
    plenty = max(2, round(1 / workload.rate))
    arms: dict[str, Callable[[], Spent]] = {
        name: partial(loop, SCORED if strategies[name].scores else plenty)
        for name, loop in loops.items()
    }
    arms |= {f"scorer {name}": each.run for name, each in trials.items() if each.run is not None}
    ratios = [partial(_against_traditional, name) for name in arms]
    rounds = enough_rounds(arms, ratios, seconds=seconds, least=LEAST, tell=tell, now=now)
    starts = {name: _start(loop, name, rounds) for name, loop in loops.items()}
    return conclude(workload, words, rounds, strategies, starts, trials)


def strategies_of(
    rate: float, scorers: Mapping[str, sb.scorers.AbstractScorer]
) -> dict[str, sb.Strategy]:
    """Return the strategies that are timed, by name, with one for each scorer."""
    from_now = sb.Schedule()
    found = {
        BASELINE: sb.traditional(),
        "random-backprop": sb.random_backprop(rate, schedule=from_now),
        "recorded-sb": sb.recorded_sb(rate, schedule=from_now),
    }
    for name, scorer in scorers.items():
        called = "selective-backprop" if name == "forward" else f"{name}-sb"
        found[called] = sb.selective_backprop(rate, warmup_epochs=0, scorer=scorer)
    return found


def _against_traditional(name: str, found: Round) -> float:
    return found[name].seconds / found[BASELINE].seconds


def _clock(workload: Workload) -> tuple[Callable[[], float], str]:
    if workload.device.type == "cuda":
        return time.perf_counter, "wall seconds"
    return time.process_time, "CPU seconds of the process"


def _start(loop: TimedLoop, name: str, rounds: Sequence[Round]) -> float:
    """Return how many seconds longer an epoch's first batch takes than the others."""
    if not loop.starts:
        return 0.0
    usual = statistics.median(
        sum(each[name].phases.get(phase, 0.0) for phase in ("load", "score", "select"))
        / each[name].steps
        for each in rounds
    )
    # The start of the first epoch of all includes warming up, so it is left out.
    return max(0.0, statistics.median(loop.starts[1:] or loop.starts) - usual)


def time_steps(workload: Workload, rounds: int) -> list[Spent]:
    """Return what a few ordinary training steps took, round by round."""
    loop = TimedLoops(workload, _clock(workload)[0]).traditional()
    found = take_rounds({"steps": lambda: loop(WINDOWS)})
    return [each["steps"] for each in islice(found, rounds)]


def conclude(
    workload: Workload,
    clock: str,
    rounds: Sequence[Round],
    strategies: Mapping[str, sb.Strategy],
    starts: Mapping[str, float],
    trials: Mapping[str, ScoringTrial],
) -> Findings:
    """Reduce the rounds, at least one, to ratios.

    Args:
        workload: what was trained.
        clock: what kind of seconds were measured, in words.
        rounds: what each arm took: loops by strategy, and passes of scorers as `scorer NAME`.
        strategies: the strategies that were timed, by name.
        starts: how many seconds longer an epoch's first batch takes, by strategy.
        trials: the results of trying the scorers.
    """
    data, full = workload.data, "scorer fp32" if "scorer fp32" in rounds[0] else EXACT
    agreements = {
        name: trial.agreement for name, trial in trials.items() if trial.agreement is not None
    }
    remarks = {name: trial.remark for name, trial in trials.items() if trial.remark is not None}
    if any(math.isnan(agreement.overlap) for agreement in agreements.values()):
        remarks["agreement"] = DIVERGED
    steps = [_step(each, workload.batch_size) for each in rounds]
    return {
        "config": {
            "data": data.name,
            "image": list(data.train_inputs.shape[1:]),
            "classes": data.classes,
            "model": workload.recipe.model,
            "precision": str(workload.recipe.precision),
            "batch_size": workload.batch_size,
            "scored_at_once": workload.at_once,
            "rate": workload.rate,
            "window": workload.window,
            "examples": workload.examples,
            "device": str(workload.device),
            "clock": clock,
        },
        "rounds": len(rounds),
        "step": {
            "eval forward": 1e6 * statistics.median(_per_row(each, EXACT) for each in rounds),
            **{
                phase: 1e6 * statistics.median(step[phase] for step in steps)
                for phase in ("forward", "backward", "step")
            },
        },
        "backward": _ratio(*([step[phase] for step in steps] for phase in ("backward", "forward"))),
        "scorers": {
            name: {
                "cost": _scoring(rounds, name, EXACT),
                "of_full": _scoring(rounds, name, full),
                "correlation": agreement.correlation,
                "overlap": agreement.overlap,
            }
            for name, agreement in agreements.items()
        },
        "strategies": _strategies(workload, rounds, strategies, starts),
        "remarks": remarks,
    }


def _scoring(rounds: Sequence[Round], name: str, whole: str) -> Row:
    arms = (f"scorer {name}", whole)
    return _ratio(*([_per_row(each, arm) for each in rounds] for arm in arms))


def _strategies(
    workload: Workload,
    rounds: Sequence[Round],
    strategies: Mapping[str, sb.Strategy],
    starts: Mapping[str, float],
) -> dict[str, Row]:
    """Return what an epoch of each strategy costs, and the least that it can cost."""
    epochs: dict[str, list[dict[str, float]]] = {}
    limits: dict[str, list[float]] = {}
    for name, strategy in strategies.items():
        trained = workload.examples * (1.0 if name == BASELINE else workload.rate)
        scored = workload.examples if strategy.scores else 0
        epochs[name], limits[name] = [], []
        for each in rounds:
            steps = trained / workload.batch_size / each[name].steps
            epoch = {phase: steps * spent for phase, spent in each[name].phases.items() if spent}
            epoch["other"] = epoch.get("other", 0.0) + starts.get(name, 0.0)
            step = sum(_step(each, workload.batch_size).values())
            limit = scored * _per_row(each, EXACT) + trained * step + epoch.get("load", 0.0)
            epochs[name].append(epoch)
            limits[name].append(limit)
    seconds = {name: [sum(epoch.values()) for epoch in found] for name, found in epochs.items()}
    plain = seconds[BASELINE]
    return {
        name: {
            "relative": _ratio(seconds[name], plain),
            "limit": _ratio(limits[name], plain),
            "over_limit": _ratio(seconds[name], limits[name]),
            "phases": {
                phase: statistics.median(epoch.get(phase, 0.0) for epoch in found)
                / max(statistics.median(plain), 1e-9)
                for phase in dict.fromkeys(phase for epoch in found for phase in epoch)
            },
        }
        for name, found in epochs.items()
    }


def _ratio(above: Sequence[float], below: Sequence[float]) -> Row:
    pairs = zip(above, below, strict=True)
    return vars(summarise([one / max(other, 1e-9) for one, other in pairs]))


def _per_row(found: Round, arm: str) -> float:
    """Return the seconds that a scorer takes for one candidate."""
    return found[arm].seconds / found[arm].scored


def _step(found: Round, rows: int) -> dict[str, float]:
    """Return the seconds per row of each phase of an ordinary training step of `rows` rows."""
    plain = found[BASELINE]
    seconds = {phase: each for phase, each in plain.phases.items() if phase != "load"}
    return {phase: each / (plain.steps * rows) for phase, each in seconds.items()}
