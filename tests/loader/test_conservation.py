"""Over whole runs nothing is lost, nothing is trained on twice, and nothing piles up."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from fixture_doors import SCHEDULES, NotedSampler, Noting, Numbered, flat, length, select
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import selective_backprop as sb

# Where a whole epoch is less than a window, nothing comes out, which is warned about; so are
# windows that cannot come near the rate.
pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")


@dataclass(frozen=True)
class Plan:
    """A run over a loader of `examples`, whose epoch `e` breaks off after `breaks[e]` batches."""

    examples: int
    loads: int
    trains: int | None
    scored: bool
    selector: sb.selectors.AbstractSelector
    schedule: sb.Schedule
    leftovers: sb.Leftovers
    drop_last: bool
    breaks: tuple[int | None, ...]

    @property
    def size(self) -> int:
        return self.trains or self.loads

    @property
    def window(self) -> int:
        return max(self.size, round(self.size / self.selector.terms.rate))


RATES = st.sampled_from([1.0, 0.7, 1 / 2, 1 / 3, 0.1])
DRAWS = st.sampled_from(["exact", "bernoulli"])
UNSCORED = st.builds(sb.selectors.Uniform, RATES, DRAWS) | st.builds(sb.selectors.Everything)
SCORED = (
    UNSCORED
    | st.builds(
        sb.selectors.Percentile, st.sampled_from([0.0, 0.5, 2.0]), DRAWS, st.integers(1, 40)
    )
    | st.builds(sb.selectors.Top, RATES)
    | st.builds(sb.selectors.Bottom, RATES)
)


@st.composite
def plans(draw: Any) -> Plan:
    scored = draw(st.booleans())
    drop_last = draw(st.booleans())
    loads = draw(st.integers(1, 16))
    return Plan(
        examples=draw(st.integers(loads if drop_last else 1, 60)),
        loads=loads,
        trains=draw(st.none() | st.integers(1, 16)),
        scored=scored,
        selector=draw(SCORED if scored else UNSCORED),
        schedule=draw(SCHEDULES),
        leftovers=draw(st.sampled_from(sb.Leftovers)),
        drop_last=drop_last,
        breaks=tuple(draw(st.lists(st.none() | st.integers(1, 6), min_size=2, max_size=4))),
    )


@given(plans())
@settings(max_examples=25)
def test_everything_that_comes_up_is_accounted_for(plan):
    Run(plan).go()


@given(plans(), st.integers(1, 3))
@settings(max_examples=15)
@example(
    Plan(48, 16, 1, True, sb.selectors.Top(1.0), sb.Schedule(), sb.Leftovers.CARRY, False, (1,)), 1
)  # each candidate batch is many windows: what a break leaves must not pile up
def test_nothing_piles_up_however_often_a_loop_breaks_off(plan, stop):
    run = Run(plan)
    for _ in range(8):
        run.epoch(stop)
        # After a batch was handed out: less than a window, less than a batch, and what is
        # left of the candidate batch that completed it.
        assert run.door.stats.waiting < plan.window + plan.size + plan.loads


class Run:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.selector = Noting(plan.selector)
        scorer = sb.scorers.Forward() if plan.scored else None
        self.sampler = NotedSampler(plan.examples)
        self.loader = DataLoader(
            Numbered(plan.examples), plan.loads, sampler=self.sampler, drop_last=plan.drop_last
        )
        self.door = select(
            self.loader,
            sb.Strategy("noted", scorer, self.selector, plan.schedule),
            batch_size=plan.trains,
            epochs=len(plan.breaks) + 3,
            leftovers=plan.leftovers,
        )
        self.trained: Counter[int] = Counter()

    def go(self) -> None:
        for stop in self.plan.breaks:
            self.epoch(stop)

    def epoch(self, stop: int | None) -> None:
        """Run one epoch, and check what holds at its end."""
        before = self.door.stats
        expected = length(self.door)
        batches: list[list[int]] = []
        for batch in self.door:
            batches.append(batch[1].tolist())
            assert length(self.door) == expected
            if len(batches) == stop:
                break
        else:
            assert expected in (None, len(batches))
            self.check_leftovers()
        assert expected is None or len(batches) <= expected
        self.check_sizes(batches)
        self.trained.update(flat(batches))
        self.check_counts(before, batches)

    def candidates(self) -> Counter[int]:
        """Everything that the sampler dealt out and that made it into a candidate batch."""
        loads, drops = self.plan.loads, self.plan.drop_last
        return Counter(
            flat(dealt[: len(dealt) // loads * loads if drops else None] for dealt in self.passes)
        )

    @property
    def passes(self) -> list[list[int]]:
        return self.sampler.passes

    def check_leftovers(self) -> None:
        """After a full epoch, by policy: less than a window and a batch waits, or nothing."""
        waiting = self.door.stats.waiting
        if self.plan.leftovers is not sb.Leftovers.CARRY:
            assert waiting == 0
        assert waiting < self.plan.window + self.plan.size
        if not self.plan.drop_last:
            assert len(self.passes[-1]) == self.plan.examples

    def check_sizes(self, batches: list[list[int]]) -> None:
        """Full batches have the user's size; only the last candidate batch may be short."""
        plan = self.plan
        tail = plan.examples % plan.loads
        for number, batch in enumerate(batches, start=1):
            last = number == len(batches)
            passed = plan.trains in (None, plan.loads) and len(batch) == tail
            flushed = plan.leftovers is sb.Leftovers.FLUSH and 0 < len(batch) < plan.size
            assert len(batch) == plan.size or (last and (passed or flushed)) or passed

    def check_counts(self, before: sb.Stats, batches: list[list[int]]) -> None:
        stats, candidates = self.door.stats, self.candidates()
        state = self.door.state_dict()
        waiting = Counter(
            flat(
                (rows[0] if rows[2] is None else rows[2]).tolist()
                for stage in (state["cursor"]["index_buffer"], state["row_buffer"])
                for kind in ("waiting", "chosen")
                for rows in stage[kind]
            )
        )
        # Everything is somewhere, by indices and by numbers.
        assert not (self.trained + waiting) - candidates
        assert stats.candidates == candidates.total()
        assert stats.waiting == waiting.total()
        assert stats.kept == self.trained.total()
        unselected = sum(self.selector.unselected)
        assert stats.candidates == stats.kept + unselected + stats.waiting + stats.dropped
        # Nothing is trained on more often than it came up, in any epoch without leftovers twice.
        assert max(self.trained.values(), default=0) <= len(self.passes)
        if before.waiting == 0:
            assert max(Counter(flat(batches)).values(), default=0) <= 1
        assert stats.batches == before.batches + len(batches)
        assert stats.dropped == 0 or self.plan.leftovers is sb.Leftovers.DROP
        assert stats.loaded == (stats.candidates if self.plan.scored else stats.kept)
