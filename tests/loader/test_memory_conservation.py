"""Where scores are remembered, too, nothing is lost, doubled or trained on unselected."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from fixture_doors import SCHEDULES, Noting, flat, length
from fixture_memory import REMEMBERING, Loop, strategy
from hypothesis import given, settings
from hypothesis import strategies as st

import selective_backprop as sb

pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")


@dataclass(frozen=True)
class Plan:
    """A run of so many epochs, of which number `e` breaks off after `breaks[e]` batches."""

    scorer: sb.scorers.AbstractScorer
    selector: sb.selectors.AbstractSelector
    schedule: sb.Schedule
    leftovers: sb.Leftovers
    examples: int
    loads: int
    trains: int | None
    drop_last: bool
    breaks: tuple[int | None, ...]


RATES = st.sampled_from([1.0, 0.7, 1 / 2, 1 / 3])
DRAWS = st.sampled_from(["exact", "bernoulli"])
SELECTORS = (
    st.builds(sb.selectors.Percentile, st.sampled_from([0.5, 2.0]), DRAWS, st.integers(1, 40))
    | st.builds(sb.selectors.Uniform, RATES, DRAWS)
    | st.builds(sb.selectors.Top, RATES)
)


@st.composite
def plans(draw: Any) -> Plan:
    drop_last, loads = draw(st.booleans()), draw(st.integers(1, 8))
    return Plan(
        draw(st.sampled_from(REMEMBERING)),
        draw(SELECTORS),
        draw(SCHEDULES),
        draw(st.sampled_from(sb.Leftovers)),
        draw(st.integers(loads if drop_last else 1, 30)),
        loads,
        draw(st.none() | st.integers(1, 8)),
        drop_last,
        tuple(draw(st.lists(st.none() | st.integers(1, 4), min_size=3, max_size=6))),
    )


@given(plans())
@settings(max_examples=15)
def test_everything_that_comes_up_is_accounted_for(plan):
    selector = Noting(plan.selector)
    loop = Loop(
        strategy(plan.scorer, selector, plan.schedule),
        plan.examples,
        plan.loads,
        options={
            "leftovers": plan.leftovers,
            "batch_size": plan.trains,
            "epochs": len(plan.breaks) + 3,
        },
        drop_last=plan.drop_last,
    )
    for stop in plan.breaks:
        check_epoch(plan, loop, stop)
        check_counts(plan, loop, sum(selector.unselected))


def check_epoch(plan: Plan, loop: Loop, stop: int | None) -> None:
    """Run an epoch; it has the length that was promised, and less than two windows wait."""
    expected, waited = length(loop.door), loop.waiting()
    known = loop.door._parts.ledger.recorded.empty and loop.door.stats.loaded > 0
    if known and plan.scorer.needs.recordings:  # broken off before anything was recorded
        return
    loop.epoch(stop)
    if loop.batches[-1] == stop:
        assert expected is None or stop <= expected
    else:
        assert expected in (None, loop.batches[-1])
        assert plan.leftovers is sb.Leftovers.CARRY or not loop.door.stats.waiting
    twice = Counter(loop.trained[-1]) - Counter(loop.sampler.passes[-1]) - waited
    assert not twice


def check_counts(plan: Plan, loop: Loop, unselected: int) -> None:
    """Everything that came up was trained on, waits, was not selected or was let go."""
    stats, waiting = loop.door.stats, loop.waiting()
    dealt = Counter(
        flat(
            some[: len(some) // plan.loads * plan.loads if plan.drop_last else None]
            for some in loop.sampler.passes
        )
    )
    assert not (Counter(flat(loop.trained)) + waiting) - dealt
    assert stats.kept == len(flat(loop.trained))
    assert stats.waiting == waiting.total()
    assert stats.candidates == dealt.total()
    assert stats.candidates == stats.kept + unselected + stats.waiting + stats.dropped
    size = plan.trains or plan.loads
    window = max(size, round(size / plan.selector.terms.rate))
    assert stats.waiting < 2 * (window + size) + plan.loads
    assert stats.dropped == 0 or plan.leftovers is sb.Leftovers.DROP
    assert stats.loaded == loop.data.reads.sum()
