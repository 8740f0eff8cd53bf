"""The measurements behind an advice, in the order in which they matter, within a budget."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from selective_backprop.guide._budget import Budget
from selective_backprop.guide._forecast import Ingredients, Round
from selective_backprop.guide._mixes import BASELINE
from selective_backprop.guide._redundancy import Redundancy, look
from selective_backprop.guide._rounds import summarise, take_rounds
from selective_backprop.guide._scorers import CheapScorer, cheap_scorers, exact_scorer
from selective_backprop.guide._scoring import ScoringGround, Trial, calibrating
from selective_backprop.guide._spending import Spent
from selective_backprop.guide._subject import Subject
from selective_backprop.guide._timed_loops import TimedLoop, TimedLoops

CPU_CLOCK = "CPU seconds of the process"
WALL_CLOCK = "wall seconds"
LEAST = 5  # rounds before measuring may end early
KNOWN = 0.02  # half-width of an interval, relative to its median, that is narrow enough
WARMING = 0.25  # share of the budget that the warm-up may take
HELD = 8  # candidate batches on which scorers are tried and gradients taken
SCORED = 2  # training batches of a round that are selected after scoring
# About how many training steps a round's loops, a scorer's trial and a look at gradients take.
ROUND, TRIAL, LOOK = 18.0, 12.0, 24.0


@dataclass
class Found:
    """What was measured.

    Attributes:
        ingredients: the figures that epochs are computed from.
        rounds: what loops and scorers took, round by round.
        cheap: the cheap scorers that were tried.
        trials: the results of trying them.
        redundancy: where losses and gradients lie; None if there was no time, or the copy
            diverged.
        diverged: whether the copy was seen to diverge.
        clock: which seconds were counted, in words.
    """

    ingredients: Ingredients
    rounds: list[Round]
    cheap: Mapping[str, CheapScorer]
    trials: Mapping[str, Trial]
    redundancy: Redundancy | None
    diverged: bool
    clock: str


@dataclass
class Inquiry:
    """Measure on a subject until the budget is spent.

    Attributes:
        subject: a copy that has been trained on one batch.
        budget: the running budget.
        scorers: what to time besides exact scoring; None for what is promising here.
        looks: whether to look at losses and gradients.
        enough: returns whether these rounds are enough; None for `LEAST` rounds that are `KNOWN`,
            or all that the budget allows.
    """

    subject: Subject
    budget: Budget
    scorers: Mapping[str, CheapScorer] | None = None
    looks: bool = True
    enough: Callable[[Sequence[Round]], bool] | None = None
    _cheap: dict[str, CheapScorer] = field(default_factory=dict)
    _trials: dict[str, Trial] = field(default_factory=dict)

    def run(self) -> Found:
        """Measure, and return what was found.

        Raises:
            ConfigurationError: if the budget is too small for the shortest answer.
        """
        subject, budget = self.subject, self.budget
        on_gpu = subject.device is not None and subject.device.type == "cuda"
        workers = subject.source.loader.num_workers
        wall = on_gpu or workers > 0
        clock = time.perf_counter if wall else time.process_time
        step = self._time_a_step()
        budget.needs(2 * ROUND * step, step)
        timed_loops = TimedLoops(subject, clock)
        plain = timed_loops.traditional()
        steps = self._warm_up(plain)
        held = list(islice(subject.batches(), HELD))
        looks = self.looks and budget.fits("losses and gradients", (LOOK + 2 * ROUND) * step)
        redundancy = look(subject, held, steps) if looks else None
        ground = ScoringGround(subject, held)
        loading = self._time_workers(timed_loops) if workers else None
        loops = {BASELINE: plain, "scored": timed_loops.scored()}
        if subject.knows_examples:
            loops |= {"random": timed_loops.random(), "recalled": timed_loops.recalled()}
        scoring = self._try_scorers(timed_loops, ground, step)
        for name, each in self._cheap.items():
            if each.overlaps and self._trials[name].running is not None:
                loops[name] = timed_loops.scored(each.scorer)
        rounds = self._take_rounds(loops, scoring)
        ingredients = Ingredients(
            subject.batch_size,
            subject.window,
            subject.examples,
            {name: _start(loop, name, rounds) for name, loop in loops.items()},
            {name: calibrating(each.scorer) for name, each in self._cheap.items()},
            loading,
        )
        return Found(
            ingredients,
            rounds,
            self._cheap,
            self._trials,
            redundancy,
            looks and redundancy is None,
            WALL_CLOCK if wall else CPU_CLOCK,
        )

    def _time_a_step(self) -> float:
        begun = time.perf_counter()
        self.subject.try_a_step()
        return time.perf_counter() - begun

    def _warm_up(self, plain: TimedLoop) -> int:
        """Train the copy for a share of the budget, at most an epoch; return the steps taken."""
        epoch = self.subject.examples // self.subject.batch_size
        limit = self.budget.spent + WARMING * self.budget.left
        steps = 0
        while steps < max(1, epoch) and self.budget.spent < limit:
            plain(1)
            steps += 1
        return steps

    def _time_workers(self, timed_loops: TimedLoops) -> tuple[float, float]:
        """Return the seconds per batch from the workers at full speed, and those of their start."""
        loader, loop = self.subject.source.loader, timed_loops.loading()
        ahead = loader.num_workers * (loader.prefetch_factor or 2)
        loop(1 + ahead)  # batches loaded ahead tell nothing about the workers' speed
        each = loop(2 * ahead).seconds / (2 * ahead)
        return each, max(0.0, min(loop.starts, default=each) - each)

    def _try_scorers(
        self, timed_loops: TimedLoops, ground: ScoringGround, step: float
    ) -> dict[str, Callable[[], Spent]]:
        """Return scoring passes to time, by name, of scorers that work here and fit the budget."""
        subject = self.subject
        exact = ground.try_out(exact_scorer(subject.autocast)).running
        assert exact is not None  # the model has been trained on such a batch
        arms = {"scorer forward": ground.arm(exact, timed_loops.stopwatch)}
        every = self.scorers
        if every is None:
            every = cheap_scorers(ground.batches[0], subject.device, subject.autocast)
        for name, each in every.items():
            if not self.budget.fits(f"scorer {name}", (TRIAL + 2 * ROUND) * step):
                continue
            self._cheap[name] = each
            trial = self._trials[name] = ground.try_out(each.scorer)
            if trial.running is not None:
                arms[f"scorer {name}"] = ground.arm(trial.running, timed_loops.stopwatch)
        return arms

    def _take_rounds(
        self, loops: Mapping[str, TimedLoop], scoring: Mapping[str, Callable[[], Spent]]
    ) -> list[Round]:
        plenty = max(2, round(1 / self.subject.rate))
        counts = {
            name: plenty if name in (BASELINE, "random", "recalled") else SCORED for name in loops
        }
        arms: dict[str, Callable[[], Spent]] = {
            name: (lambda loop=loop, count=counts[name]: loop(count))
            for name, loop in loops.items()
        }

        def enough(rounds: Sequence[Round]) -> bool:
            known = len(rounds) >= LEAST and are_known(rounds, loops, within=KNOWN)
            return known or self.budget.left <= 0

        rounds: list[Round] = []
        for found in take_rounds(arms | dict(scoring)):
            rounds.append(found)
            if (self.enough or enough)(rounds):
                break
        return rounds


def _start(loop: TimedLoop, name: str, rounds: list[Round]) -> float:
    """Return how many seconds longer an epoch's first batch takes than any other."""
    if not loop.starts:
        return 0.0
    usual = statistics.median(
        sum(each[name].phases.get(phase, 0.0) for phase in ("load", "score", "select"))
        / each[name].steps
        for each in rounds
    )
    # The start of the very first epoch includes warming up.
    return max(0.0, statistics.median(loop.starts[1:] or loop.starts) - usual)


def are_known(rounds: Sequence[Round], names: Iterable[str], *, within: float) -> bool:
    """Return whether what arms take is known well enough, relative to traditional training."""
    return all(
        summarise([each[name].seconds / each[BASELINE].seconds for each in rounds]).within(within)
        for name in names
    )
