"""Over whole runs nothing is lost, nothing is trained on twice, and nothing piles up."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from fixture_cases import SCHEDULES, share_of_cases
from fixture_loaders import Noting, flat, length
from fixture_memory import REMEMBERING, Loop, strategy
from hypothesis import example, given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop._sampling.schedule import Phase

# Where a whole epoch is less than a window, nothing comes out, which is warned about; so are
# windows that cannot come near the rate.
pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")
FORWARD = sb.scorers.Forward()


@dataclass(frozen=True)
class Plan:
    """A run over a loader of `examples`, whose epoch `e` breaks off after `breaks[e]` batches."""

    scorer: sb.scorers.AbstractScorer | None
    selector: sb.selectors.AbstractSelector
    schedule: sb.Schedule
    leftovers: sb.Leftovers
    examples: int
    loads: int
    trains: int | None
    drop_last: bool
    breaks: tuple[int | None, ...]

    @property
    def size(self) -> int:
        return self.trains or self.loads

    @property
    def window(self) -> int:
        return max(self.size, round(self.size / self.selector.terms.rate))

    @property
    def remembers(self) -> bool:
        return self.scorer in REMEMBERING

    @property
    def draws_ahead(self) -> bool:
        """Whether an epoch that begins with all scores known draws from all examples at once."""
        return self.remembers and self.selector.terms.draw is sb.selectors.Draw.BERNOULLI


RATES = st.sampled_from([1.0, 0.7, 1 / 2, 1 / 3, 0.1])
DRAWS = st.sampled_from(["exact", "bernoulli"])
UNIFORM = st.builds(sb.selectors.Uniform, RATES, DRAWS)
BY_SCORE = (
    st.builds(sb.selectors.Percentile, st.sampled_from([0.0, 0.5, 2.0]), DRAWS, st.integers(1, 40))
    | st.builds(sb.selectors.Top, RATES)
    | UNIFORM
)
SELECTORS = {
    None: UNIFORM | st.builds(sb.selectors.Everything),
    FORWARD: BY_SCORE | st.builds(sb.selectors.Bottom, RATES) | st.builds(sb.selectors.Everything),
}
FRESH, REMEMBERED = st.sampled_from([None, FORWARD]), st.sampled_from(REMEMBERING)


@st.composite
def plans(draw: Any, scorers: st.SearchStrategy = FRESH | REMEMBERED) -> Plan:
    scorer, drop_last, loads = draw(scorers), draw(st.booleans()), draw(st.integers(1, 16))
    return Plan(
        scorer,
        draw(SELECTORS.get(scorer, BY_SCORE)),
        draw(SCHEDULES),
        draw(st.sampled_from(sb.Leftovers)),
        draw(st.integers(loads if drop_last else 1, 60)),
        loads,
        draw(st.none() | st.integers(1, 16)),
        drop_last,
        tuple(draw(st.lists(st.none() | st.integers(1, 6), min_size=2, max_size=5))),
    )


@given(plans())
@share_of_cases(4 / 3)
@example(
    Plan(
        *(sb.scorers.Stale(FORWARD, 3), sb.selectors.Uniform(0.7, "bernoulli")),
        *(sb.Schedule(end=0.75), sb.Leftovers.CARRY, 2, 1, None, False, (None, 1)),
    )
)  # what is not selected of all examples has not come up where the loop breaks off
@example(
    Plan(
        *(sb.scorers.Stale(FORWARD, 3), sb.selectors.Uniform(0.7, "bernoulli")),
        *(sb.Schedule(), sb.Leftovers.CARRY, 2, 2, 1, False, (1, 1)),
    )
)  # nothing at all has come up: the epoch broke off at a row that had waited
def test_everything_that_comes_up_is_accounted_for(plan):
    run = Run(plan)
    for stop in plan.breaks:
        run.epoch(stop)


@given(plans(FRESH), st.integers(1, 3))
@share_of_cases(1 / 2)
@example(
    Plan(FORWARD, sb.selectors.Top(1.0), sb.Schedule(), sb.Leftovers.CARRY, 48, 16, 1, False, (1,)),
    1,
)  # each candidate batch is many windows: what a break leaves must not pile up
def test_nothing_piles_up_however_often_a_loop_breaks_off(plan, stop):
    run = Run(plan)
    for _ in range(8):
        run.epoch(stop)
        # After a batch was handed out: less than a window, less than a batch, and what is
        # left of the candidate batch that completed it.
        assert run.loader.stats.waiting < plan.window + plan.size + plan.loads


class Run:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.selector = plan, Noting(plan.selector)
        self.unselected, self.counted = 0, 0
        self.kept: set[int] | None = None
        options = {"leftovers": plan.leftovers, "batch_size": plan.trains}
        self.loop = Loop(
            strategy(plan.scorer, self.selector, plan.schedule),
            plan.examples,
            plan.loads,
            options=options | {"epochs": len(plan.breaks) + 3},
            drop_last=plan.drop_last,
        )
        self.loader = self.loop.loader
        clock = self.loader._pipeline.clock
        self.phase_of, clock.phase = clock.phase, self.phase

    def phase(self, epoch: int, drawn: int) -> Phase:
        """Count what a draw of all examples, made as the epoch began, left out of a batch.

        Only of what comes up: the loop may break off before the rest does.
        """
        phase = self.phase_of(epoch, drawn)
        if not drawn and self.plan.draws_ahead:
            self.take_ahead()
        if phase is Phase.SELECT and self.kept is not None:
            self.unselected += len(
                {*self.loop.sampler.passes[-1][drawn * self.plan.loads :]} - self.kept
            )
        return phase

    def take_ahead(self) -> None:
        """Keep a draw of all examples apart from draws of what came up; it is the first."""
        ahead = self.selector.chosen[self.counted :]
        del self.selector.chosen[self.counted :], self.selector.unselected[self.counted :]
        self.kept = set(ahead[-1]) if ahead else None

    def epoch(self, stop: int | None) -> None:
        """Run one epoch, and check what holds at its end."""
        records = self.plan.remembers and self.plan.scorer.needs.recordings
        if records and self.loader.ledger.recorded.empty and self.loader.stats.loaded > 0:
            return  # broken off before anything was recorded
        before, expected, waited = self.loader.stats, length(self.loader), self.loop.waiting()
        trained = [0]

        def each() -> None:
            trained.append(len(self.loop.trained[-1]))
            assert length(self.loader) == expected

        self.loop.epoch(stop, each)
        sizes = [many - few for few, many in pairwise(trained)]
        if len(sizes) == stop:
            assert expected is None or stop <= expected
        else:
            assert expected in (None, len(sizes))
            self.check_leftovers()
        if not self.plan.remembers:
            self.check_sizes(sizes)
        assert not Counter(self.loop.trained[-1]) - Counter(self.loop.sampler.passes[-1]) - waited
        assert self.loader.stats.batches == before.batches + len(sizes)
        self.check_counts(self.loader.stats.candidates > before.candidates)

    def check_leftovers(self) -> None:
        """After a full epoch, by policy: less than a window and a batch waits, or nothing."""
        waiting = self.loader.stats.waiting
        assert waiting == 0 or self.plan.leftovers is sb.Leftovers.CARRY
        if not self.plan.remembers:
            assert waiting < self.plan.window + self.plan.size
            assert self.plan.drop_last or len(self.loop.sampler.passes[-1]) == self.plan.examples

    def check_sizes(self, sizes: list[int]) -> None:
        """Full batches have the user's size; only the last candidate batch may be short."""
        plan = self.plan
        tail = plan.examples % plan.loads
        for number, size in enumerate(sizes, start=1):
            passed = plan.trains in (None, plan.loads) and size == tail
            flushed = plan.leftovers is sb.Leftovers.FLUSH and number == len(sizes)
            assert size == plan.size or passed or (flushed and 0 < size < plan.size)

    def check_counts(self, came_up: bool) -> None:
        """Everything that came up was trained on, waits, was not selected or was let go."""
        plan, stats, waiting = self.plan, self.loader.stats, self.loop.waiting()
        loads = plan.loads
        dealt = Counter(
            flat(
                some[: len(some) // loads * loads if plan.drop_last else None]
                for some in self.loop.sampler.passes
            )
        )
        assert not (Counter(flat(self.loop.trained)) + waiting) - dealt
        assert stats.kept == len(flat(self.loop.trained))
        assert stats.waiting == waiting.total()
        assert stats.candidates == dealt.total()
        if plan.draws_ahead and not came_up:
            self.take_ahead()
        self.counted = len(self.selector.unselected)
        unselected = self.unselected + sum(self.selector.unselected)
        assert stats.candidates == stats.kept + unselected + stats.waiting + stats.dropped
        assert stats.dropped == 0 or plan.leftovers is sb.Leftovers.DROP
        assert stats.loaded == self.loop.data.reads.sum()
        if plan.remembers:
            assert stats.waiting < 2 * (plan.window + plan.size) + loads
        else:
            assert stats.loaded == (stats.kept if plan.scorer is None else stats.candidates)
