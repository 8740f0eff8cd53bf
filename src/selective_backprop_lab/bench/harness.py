"""Measure what scoring and selecting cost: short epochs and scoring passes that take turns."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.bench.rounds import enough_rounds, summarise, take_rounds
from selective_backprop_lab.bench.workload import Workload, all_scorers
from selective_backprop_lab.preparation import Preparation
from selective_backprop_lab.recipe import Precision
from selective_backprop_lab.strategies import TIMED, StrategyOptions, find_strategy

BASELINE, PASS = "traditional", "scorer "
EXACT = f"{PASS}forward"
HELD = 8  # batches of candidates on which scorers are tried
STEPS = 6  # training steps per round that `time_steps` takes
DIVERGED = (
    "the model diverged in its warm-up: its losses or their gradients are not finite. Lower the "
    "learning rate"
)


@dataclass(frozen=True)
class Spent:
    """What a variant took in a round."""

    phases: Mapping[str, float]  # seconds
    rows: int  # that it trained on, or of a scoring pass
    scored: int = 0  # candidates that it scored to select from

    @property
    def seconds(self) -> float:
        """Seconds of all phases."""
        return sum(self.phases.values())


class ScoringTrial(NamedTuple):
    """The result of trying a scorer."""

    run: Callable[[], Spent] | None  # a scoring pass to time; None if the scorer fails here
    agreement: sb.scorers.Agreement | None  # with exact scores; NaN if no exact score is finite
    remark: str | None  # a warning about the scorer, or why it fails here


Round = Mapping[str, Spent]  # by strategy, and by PASS and the scorer's name
Note = Callable[[Tensor], None]
Findings = Mapping[str, Any]


class TimedLoops:
    """The epochs and the scoring passes of a workload that are timed."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        clock = time.perf_counter if workload.device.type == "cuda" else time.process_time
        self._stopwatch = sb.Stopwatch(workload.device, clock=clock)
        self._plain = workload.loader()
        self._losses: Tensor | None = None  # like a batch, they live until the next ones
        self._scored = 0

    def traditional(self) -> Iterator[int]:
        """Train on the batches of the plain loader for an epoch, and yield their sizes."""
        batches = iter(self._plain)
        while True:
            with self._stopwatch.phase("load"):
                batch = next(batches, None)
            if batch is None:
                return
            yield self._step(batch)

    def selecting(self, strategy: sb.Strategy) -> Callable[[], Iterator[int]]:
        """Return what trains for an epoch on what a strategy selects, and yields batch sizes."""
        workload = self.workload
        loader = sb.SelectiveLoader(
            workload.loader(scored=strategy.scores),
            workload.model,
            None,
            strategy,
            losses=workload.losses,
            outputs=workload.outputs,
            progress=lambda: 0.5,  # for strategies that change as training goes on
            batch_size=workload.recipe.batch_size,
            with_selection=True,
            device=workload.device,
            nonfinite="select",
            stopwatch=self._stopwatch,
            quiet=True,
        )
        records = strategy.needs is not None and strategy.needs.recordings
        if records:
            every = sb.Selection(torch.arange(workload.examples), torch.ones(workload.examples))
            # Put the ledger where the losses will be; on the host it would wait for each of them.
            loader.record(every, torch.rand(workload.examples, device=workload.device), targets=())

        def epoch() -> Iterator[int]:
            before = loader.stats.scored
            for batch, chosen in loader:
                note = partial(loader.record, chosen, targets=()) if records else None
                yield self._step(batch, chosen.weights, note)
            self._scored = loader.stats.scored - before

        return epoch

    def timed(self, epoch: Callable[[], Iterator[int]]) -> Spent:
        """Run an epoch, and return what it took."""
        self._stopwatch.go_on({})
        self._scored = 0
        self._stopwatch.start()
        rows = sum(epoch())
        self._stopwatch.stop()
        return Spent(self._stopwatch.seconds, rows, self._scored)

    def scoring(self, scorer: sb.scorers.AbstractScorer, precision: Precision) -> ScoringTrial:
        """Try a scorer in a precision, and compare its scores with exact scores in fp32."""
        workload = self.workload
        batches = list(islice(workload.loader(scored=True), HELD))
        context = sb.scorers.Context(
            batch_size=workload.recipe.batch_size,
            window=workload.window,
            model=workload.model,
            losses=partial(workload.losses, precision=precision),
            device=workload.device,
            examples=workload.examples,
            rate=workload.rate,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                running = scorer.start(context)
                full = partial(workload.losses, precision=Precision.FP32)
                exact = sb.scorers.Forward().start(replace(context, losses=full))
                scores, truth = (
                    torch.cat([each.score(batch, None) for batch in batches])
                    for each in (running, exact)
                )
                agreement = sb.scorers.Agreement.between(scores, truth, rate=workload.rate)
            except Exception as error:  # the user's model or a compiler may raise anything
                return ScoringTrial(None, None, f"{type(error).__name__}: {error}")
        if not truth.isfinite().any():  # there is nothing to agree with
            agreement = replace(agreement, correlation=math.nan, overlap=math.nan)
        said = [str(w.message) for w in caught if issubclass(w.category, sb.SelectionWarning)]

        def score() -> Iterator[int]:
            with self._stopwatch.phase("score"):
                yield sum(len(running.score(batch, None)) for batch in batches)

        return ScoringTrial(partial(self.timed, score), agreement, said[0] if said else None)

    def _step(self, batch: Any, weights: Tensor | None = None, note: Note | None = None) -> int:
        workload, phase = self.workload, self._stopwatch.phase
        with phase("forward"):
            workload.optimizer.zero_grad()
            losses = self._losses = workload.losses(workload.model, batch)
            if weights is not None:
                losses = losses * weights.to(losses.device)
        if note is not None:
            with phase("select"):
                note(losses.detach())
        with phase("backward"):
            losses.mean().backward()
        with phase("step"):
            workload.optimizer.step()
        return len(losses)


def measure(
    workload: Workload,
    names: Sequence[str] = TIMED,
    *,
    seconds: float,
    tell: Callable[[int, float], None],
) -> Findings:
    """Time epochs of strategies, and all scorers, for as many rounds as `enough_rounds` takes."""
    strategies = {name: without_warmup(name, workload.rate) for name in names}
    loops = TimedLoops(workload)
    loops.timed(loops.traditional)  # the losses of an untrained model would not be typical
    scorers = all_scorers(workload.device, workload.recipe.precision)
    trials = {name: loops.scoring(*scorer) for name, scorer in scorers.items()}
    for name in trials.keys() - {"forward", *Precision}:
        if trials[name].run:
            of: dict[str, Any] = {"warmup_epochs": 0, "scorer": scorers[name][0]}
            strategies[f"{name}-sb"] = sb.selective_backprop(workload.rate, **of)
    epochs = {BASELINE: loops.traditional} | {
        name: loops.selecting(each) for name, each in strategies.items() if name != BASELINE
    }
    arms: dict[str, Callable[[], Spent]] = {
        **{name: partial(loops.timed, epoch) for name, epoch in epochs.items()},
        **{f"{PASS}{name}": trial.run for name, trial in trials.items() if trial.run},
    }
    ratios = [lambda found, n=name: found[n].seconds / found[BASELINE].seconds for name in arms]
    return conclude(workload, enough_rounds(arms, ratios, seconds=seconds, tell=tell), trials)


def without_warmup(name: str, rate: float) -> sb.Strategy:
    """Return a strategy of the lab or of the user's own that selects from the first epoch on."""
    spec = find_strategy(name)
    if "+" in name or spec.prepare is not None:
        raise sb.ConfigurationError(
            f"bench times only what selects during training, so it cannot time {name}; compare can"
        )
    made = spec.make(StrategyOptions(rate, warmup=0.0, warmup_epoch=False), Preparation())
    return replace(made, schedule=replace(made.schedule, warmup_epochs=0))


def time_steps(workload: Workload, rounds: int) -> list[Spent]:
    """Return how long a few ordinary training steps took, round by round."""
    loops = TimedLoops(workload)
    steps = partial(loops.timed, lambda: islice(loops.traditional(), STEPS))
    return [found["steps"] for found in islice(take_rounds({"steps": steps}), rounds)]


def conclude(
    workload: Workload, rounds: Sequence[Round], trials: Mapping[str, ScoringTrial]
) -> Findings:
    """Reduce the rounds, at least one, to the findings of `bench`, as in its record.

    A ratio is a dictionary of a `Median`. Phases of a strategy add up to about `relative`. Overlap
    and correlation are NaN if no exact score is finite. `show_findings` says what the rest means.
    """
    data, cuda = workload.data, workload.device.type == "cuda"
    arms = {  # [round, phase]
        name: pd.DataFrame([found[name].phases for found in rounds]).fillna(0.0)
        for name in rounds[0]
    }
    seconds = {name: phases.sum(axis=1) for name, phases in arms.items()}
    rows, scored = (
        {name: pd.Series([getattr(found[name], kind) for found in rounds]) for name in arms}
        for kind in ("rows", "scored")
    )
    plain, exact = arms[BASELINE].div(rows[BASELINE], axis=0), seconds[EXACT] / rows[EXACT]
    step = plain.drop(columns="load")  # seconds of each phase per row
    limits = {
        name: rows[name] * step.sum(axis=1) + phases.get("load", 0.0) + scored[name] * exact
        for name, phases in arms.items()
        if not name.startswith(PASS)
    }
    full = seconds.get(f"{PASS}fp32", seconds[EXACT])
    agreements = {name: trial.agreement for name, trial in trials.items() if trial.agreement}
    remarks = {name: trial.remark for name, trial in trials.items() if trial.remark is not None}
    if any(math.isnan(agreement.overlap) for agreement in agreements.values()):
        remarks["agreement"] = DIVERGED
    return {
        "config": {
            "data": data.name,
            "image": list(data.train_inputs.shape[1:]),
            "classes": data.classes,
            "model": workload.recipe.model,
            "precision": str(workload.recipe.precision),
            "batch_size": workload.recipe.batch_size,
            "scored_at_once": workload.at_once,
            "rate": workload.rate,
            "window": workload.window,
            "examples": workload.examples,
            "device": str(workload.device),
            "clock": "wall seconds" if cuda else "CPU seconds of the process",
        },
        "rounds": len(rounds),
        "step": {
            "eval forward": 1e6 * float(exact.median()),
            **{name: 1e6 * float(step[name].median()) for name in ("forward", "backward", "step")},
        },
        "backward": _ratio(step["backward"] / step["forward"]),
        "scorers": {
            name: {
                "cost": _ratio(seconds[PASS + name] / seconds[EXACT]),
                "of_full": _ratio(seconds[PASS + name] / full),
                "correlation": agreement.correlation,
                "overlap": agreement.overlap,
            }
            for name, agreement in agreements.items()
        },
        "strategies": {
            name: {
                "relative": _ratio(seconds[name] / seconds[BASELINE]),
                "limit": _ratio(limit / seconds[BASELINE]),
                "over_limit": _ratio(seconds[name] / limit),
                "phases": (arms[name].median() / seconds[BASELINE].median()).to_dict(),
            }
            for name, limit in limits.items()
        },
        "remarks": remarks,
    }


def _ratio(values: pd.Series) -> dict[str, Any]:
    return vars(summarise(values.tolist()))
