"""Ranks train on equally many batches, against one history, whatever their shards are."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from fixture_cases import SCHEDULES, share_of_cases
from fixture_extend import HISTORIES, Ranked
from fixture_rank_tasks import Case, EpochReport, resume_held, train_numbered
from fixture_ranks import Failed, Ranks
from hypothesis import example, given
from hypothesis import strategies as st
from reference import LossHistory

import selective_backprop as sb

RATES = st.sampled_from([1.0, 0.7, 1 / 2, 1 / 3, 0.1])
DRAWS = st.sampled_from(["exact", "bernoulli"])
FORWARD = sb.scorers.Forward()
REMEMBERING = [
    sb.scorers.Stale(FORWARD, 3),
    sb.scorers.Stale(FORWARD, 2, spread=True),
    sb.scorers.Recorded(),
    sb.scorers.Recorded(max_age=2, rescore=FORWARD),
]
UNSCORED = st.builds(sb.selectors.Uniform, RATES, DRAWS) | st.builds(sb.selectors.Everything)
SCORED = UNSCORED | st.builds(
    sb.selectors.Percentile, st.sampled_from([0.0, 0.5, 2.0]), DRAWS, st.integers(1, 30)
)
REMEMBERED = st.builds(sb.selectors.Percentile, st.sampled_from([0.5, 2.0]), DRAWS) | st.builds(
    sb.selectors.Uniform, st.sampled_from([0.7, 1 / 2, 1 / 3]), DRAWS
)
EXACT = sb.selectors.Percentile(1.0, "exact", 16)
COINS = sb.selectors.Percentile(2.0, "bernoulli", 16)
GATED = sb.Schedule(gate=sb.VarianceGate(0.0, 2, threshold=1.15))  # about what the losses gain


@st.composite
def cases(draw: Any, selector: Any = None) -> Case:
    size = draw(st.sampled_from([2, 2, 4]))
    scorer = FORWARD
    if selector is None:
        scorer = draw(st.sampled_from([None, FORWARD, FORWARD, *REMEMBERING]))
        selectors = {None: UNSCORED, FORWARD: SCORED}.get(scorer, REMEMBERED)
    return Case(
        shards=tuple(draw(st.lists(st.integers(1, 40), min_size=size, max_size=size))),
        selector=draw(selectors if selector is None else selector),
        scorer=scorer,
        loads=draw(st.integers(1, 9)),
        trains=draw(st.integers(1, 6)),
        leftovers=draw(st.sampled_from(sb.Leftovers)),
        schedule=sb.Schedule() if selector is not None else draw(SCHEDULES),
        breaks=tuple(draw(st.lists(st.none() | st.integers(1, 4), min_size=2, max_size=3))),
    )


def train(processes: Ranks, case: Case) -> list[list[EpochReport]]:
    """What each rank reports of each epoch."""
    answers = processes.form(len(case.shards)).run(train_numbered, case)
    assert not [each for each in answers if isinstance(each, Failed)]
    return answers


@given(case=cases())
@share_of_cases(1 / 3)
@example(case=Case((3, 40), EXACT))  # one shard has not even a window
@example(case=Case((40, 3, 17, 40), COINS, leftovers="flush"))
@example(case=Case((9, 30), sb.selectors.Everything(), leftovers="drop", breaks=(None, 2, None)))
@example(case=Case((9, 30), sb.selectors.Uniform(1 / 3), scorer=None, breaks=(None, None, None)))
@example(case=Case((40, 17, 33, 40), EXACT, schedule=GATED, breaks=(None, None, None)))
@example(case=Case((40, 31), COINS, schedule=GATED, breaks=(None, 3, None)))
def test_ranks_take_equally_many_batches_and_nothing_is_lost(processes, case):
    reports = train(processes, case)
    for epochs in zip(*reports, strict=True):
        assert len({len(report.turns) for report in epochs}) == 1
        # An epoch ends because a rank has nothing left, not before.
        if epochs[0].turns[-1].batch is None:
            assert not all(report.cut for report in epochs)
        check_lengths(epochs)
    for rank, epochs in enumerate(reports):
        check_conservation(case, rank, epochs)


def check_lengths(epochs: tuple[EpochReport, ...]) -> None:
    """While an epoch runs, every rank knows its length or none does, and it is right."""
    told = {length for report in epochs for length in report.lengths}
    assert len(told) <= 1
    if epochs[0].turns[-1].batch is None and told - {None}:
        assert told == {len(epochs[0].turns) - 1}


def check_conservation(case: Case, rank: int, epochs: list[EpochReport]) -> None:
    """Each example was trained on, left out, waits, was dropped, or never came up."""
    trained = Counter(
        number for report in epochs for turn in report.turns if turn.batch for number in turn.batch
    )
    last = epochs[-1]
    waiting = Counter(last.waiting)
    dealt = Counter({number: len(epochs) for number in case.shard(rank)})
    assert not (trained + waiting) - dealt
    assert last.stats.waiting == waiting.total()
    assert last.stats.kept == trained.total()
    placed = last.stats.kept + last.stats.waiting + last.stats.dropped
    if case.scorer in REMEMBERING and case.selector.terms.draw is not sb.selectors.Draw.EXACT:
        # Each rank draws from all examples, and those of other shards are left out, too.
        assert placed <= last.stats.candidates <= placed + last.unselected
    else:
        assert last.stats.candidates == placed + last.unselected
    if all(report.turns[-1].batch is None for report in epochs):
        assert last.stats.candidates + last.stats.beyond == dealt.total()
    # Nothing piles up: windows and batches, the rest of a candidate batch, and a batch held.
    kinds = 2 if case.scorer in REMEMBERING else 1  # drawn before loading, and after it
    most = kinds * (case.window + case.trains) + case.loads + max(case.trains, case.loads)
    assert last.stats.waiting < most
    if case.leftovers != "carry" and last.turns[-1].batch is None:
        assert last.stats.waiting == 0


def share(history: LossHistory, filed: Sequence[Sequence[float]], most: int) -> None:
    """After an exchange, the newest scores of all ranks are remembered, in the ranks' order."""
    for scores in filed:
        history.add(scores[-most:])


@given(
    case=cases(selector=st.builds(sb.selectors.Percentile, st.just(1.0), DRAWS, st.integers(1, 20)))
)
@share_of_cases(1 / 4)
@example(case=Case((30, 12), COINS, loads=3))
def test_after_each_exchange_all_ranks_have_the_same_history_of_all_scores(processes, case):
    reports = train(processes, case)
    size = len(reports)
    plain = LossHistory(max(case.selector.terms.history, case.window) * size)
    for epochs in zip(*reports, strict=True):
        for turns in zip(*(report.turns for report in epochs), strict=True):
            share(plain, [turn.filed for turn in turns], case.window)
            # As they lie in memory, bit for bit.
            assert len({tuple(turn.recent) for turn in turns}) == 1
            assert Counter(turns[0].recent) == Counter(plain.losses)


@pytest.mark.parametrize("kind", HISTORIES)
def test_ranks_share_a_history_of_any_type(processes, kind):
    reports = train(processes, Case((30, 21), Ranked(COINS, kind), loads=3))
    for epochs in zip(*reports, strict=True):
        for turns in zip(*(report.turns for report in epochs), strict=True):
            assert len({tuple(turn.recent) for turn in turns}) == 1
    assert len(reports[0][-1].turns[-1].recent) > 20


@pytest.mark.parametrize(
    ("case", "numbers"),
    [
        (Case((30, 21), EXACT), 8 + 5),
        (Case((30, 21, 9, 33), EXACT, schedule=sb.Schedule(warmup_epochs=1)), 8 + 5),
        (Case((30, 21), sb.selectors.Uniform(1 / 2), scorer=None), 5),
    ],
)
def test_a_batch_costs_one_message_of_a_window_and_five_numbers_at_most(processes, case, numbers):
    for epochs in zip(*train(processes, case), strict=True):
        for report in epochs:
            assert report.sent == [4 * numbers] * len(report.turns)
            assert report.opening <= 4


@pytest.mark.parametrize("scorer", [FORWARD, None, sb.scorers.Stale(FORWARD, 3)])
def test_a_batch_that_is_held_is_saved_and_goes_first(processes, scorer):
    case = Case((16, 80), sb.selectors.Uniform(1 / 2), scorer)
    short, long = processes.form(2).run(resume_held, case)
    assert (short[0], long[0]) == (0, 4)
    for _, went_on, resumed in (short, long):
        assert resumed == went_on
        assert went_on
