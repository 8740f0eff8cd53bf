"""What any rank learns of an example, all know from the next epoch on."""

import math
import re

import fixture_rank_ledger as tasks
import pytest
from fixture_rank_ledger import EXAMPLES, Noted, Remembered
from fixture_ranks import Failed

import selective_backprop as sb

STALE = sb.Strategy(
    "stale", sb.scorers.Stale(sb.scorers.Forward(), 3), sb.selectors.Percentile(1.0)
)
SPREAD = sb.Strategy(
    "spread", sb.scorers.Stale(sb.scorers.Forward(), 2, spread=True), sb.selectors.Percentile(1.0)
)
RECORDED = sb.Strategy("recorded", tasks.Classified(), sb.selectors.Percentile(1.0))
RESCORED = sb.Strategy(
    "rescored",
    sb.scorers.Recorded(rescore=sb.scorers.Forward()),
    sb.selectors.Percentile(1.0, "bernoulli"),
)
KINDS = ("scored", "recorded")
TAIL = sb.tail_sft(max_age=2, schedule=sb.Schedule())
STRATEGIES = [STALE, SPREAD, RECORDED, TAIL]


def expected(noted: list[list[Noted]], epochs: int) -> tuple[list[float], list[int]]:
    """Each example's last score and its epoch, from what each rank noted in each epoch."""
    scores, times = [math.nan] * EXAMPLES, [-1] * EXAMPLES
    for epoch in range(epochs):
        for rank in noted:
            for number, score in rank[epoch]:
                scores[number], times[number] = score, epoch
    return scores, times


@pytest.fixture
def group(processes):
    return processes.form(4)


def columns_agree(found: Remembered, wanted: list[tuple[list[float], list[int]]]) -> bool:
    return all(
        one[0] == pytest.approx(other[0], abs=0, nan_ok=True) and one[1] == other[1]
        for one, other in zip(found.columns, wanted, strict=True)
    )


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_what_any_rank_found_is_in_every_ledger(group, strategy):
    answers: list[Remembered] = group.run(tasks.remember, strategy, 3)
    wanted = [expected([getattr(seen, kind) for seen in answers], 3) for kind in KINDS]
    trained = [n for seen in answers for epoch in seen.batches[:3] for b in epoch for n in b]
    counts = [trained.count(number) for number in range(EXAMPLES)]
    told = {n for seen in answers[1::2] for epoch in seen.recorded[:3] for n, _ in epoch}
    classes = [n % 5 if strategy is RECORDED and n in told else math.nan for n in range(EXAMPLES)]
    for seen in answers:
        assert columns_agree(seen, wanted)
        assert seen.selected == counts
        assert seen.classes == pytest.approx(classes, abs=0, nan_ok=True)
        if strategy is STALE:
            assert len(seen.scored[0]) > 0
            assert seen.scored[1] == seen.scored[2] == []  # another rank's scores are as good
    assert all(len({len(seen.batches[epoch]) for seen in answers}) == 1 for epoch in range(3))


def test_what_all_ranks_recorded_is_in_the_ledger_when_an_epoch_ends(group):
    answers = group.run(tasks.learn, RECORDED)
    trained = set().union(*(seen for seen, _ in answers))
    assert all(known == trained for _, known in answers)


def test_what_an_epoch_leaves_out_is_scored_on_all_ranks_whoever_ended_it(group):
    reports = group.run(tasks.leave_out, RESCORED, 6)
    assert any(cut for report in reports for cut, _ in report)
    assert all(not left for report in reports for _, left in report)


def test_a_rank_that_fails_when_others_have_ended_the_epoch_is_heard_of(processes):
    answers = processes.form(2).run(tasks.fail_to_score_what_is_left, RESCORED)
    assert sorted(each.kind for each in answers) == ["LoaderError", "OSError"]


def test_a_rank_that_fails_before_its_first_candidate_is_heard_of(processes):
    failing, other = processes.form(2).run(tasks.fail_to_recall, 0)
    assert failing.kind == "AttributeError"
    assert other.kind == "LoaderError"
    assert "rank 0 of 2" in other.message


def test_all_ranks_draw_by_the_seed_of_the_first(group):
    assert group.run(tasks.seed_by_rank) == [0] * group.size


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_an_epoch_goes_on_in_its_middle_with_a_merged_ledger(group, strategy):
    answers = group.run(tasks.go_on, strategy, 1)
    assert not [each for each in answers if isinstance(each, Failed)]
    for whole, rest in answers:
        assert rest.batches == whole.batches
        left = len(whole.recorded[1]) - len(rest.recorded[1])
        assert rest.recorded[1:] == [whole.recorded[1][left:], *whole.recorded[2:]]
        assert str(rest.columns) == str(whole.columns)  # where NaN equals NaN
        assert rest.selected == whole.selected


def test_ranks_that_go_on_from_different_places_are_told_apart(group):
    for answer in group.run(tasks.go_on_alone):
        assert answer.kind == "ConfigurationError"
        assert re.search("rank 1 has continued=False, rank 0 .*=True", answer.message)


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_all_ranks_read_one_share_of_wrong_labels_off_the_rows_of_all(group, wrong):
    answers = group.run(tasks.read_wrong_labels, wrong)
    assert sum(seen for seen, _ in answers) == 2000
    shares = {found for _, found in answers}
    [(share, half_width)] = shares
    assert share == pytest.approx(wrong, abs=half_width)
    assert half_width < 0.07  # a rank alone has a half or a quarter of the rows


def test_no_rank_reads_a_share_of_wrong_labels_off_data_stored_by_class(group):
    assert {found for _, found in group.run(tasks.read_wrong_labels, 0.3, False)} == {None}
