"""Models that several ranks train together: DDP, FSDP, groups within groups, and steps."""

import re

import fixture_rank_models as tasks
import pytest
import torch
from fixture_loaders import flat

import selective_backprop as sb

SB = sb.selective_backprop(1 / 2, warmup_epochs=0)


@pytest.fixture
def pair(processes):
    return processes.form(2)


def test_a_sharded_model_is_trained_as_a_replicated_one(pair):
    sharded, replicated = (pair.run(tasks.train_small, shards) for shards in (True, False))
    for (found, steps), (wanted, taken) in zip(sharded, replicated, strict=True):
        assert steps == taken > 10
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        (sb.selective_backprop(1 / 2, draw="bernoulli"), {}, 'pass it draw="exact"'),
        (sb.kath18(), {}, "schedule without"),
        (sb.stale_sb(1 / 2), {}, "all or none"),
        (SB, {"nonfinite": "skip"}, "'raise' or 'select'"),
        (sb.selective_backprop(1 / 2, start=0.2), {"progress": float}, "pass epochs="),
        (
            sb.selective_backprop(1 / 2, scorer=tasks.OfACopy()),
            {},
            r"plain_forward=True.*use Forward\(\)",
        ),
    ],
)
def test_what_would_score_unequally_is_refused_for_a_sharded_model(
    pair, strategy, options, message
):
    for answer in pair.run(tasks.score_sharded, strategy, (16, 16), options):
        assert answer.kind == "ConfigurationError"
        assert re.search("FSDP gathers.*" + message, answer.message)


def test_unequal_shards_are_refused_for_a_sharded_model_when_an_epoch_opens(pair):
    for answer in pair.run(tasks.score_sharded, SB, (16, 20), {}):
        assert answer.kind == "ConfigurationError"
        assert re.search("16 new and 0 .*20 new and 0", answer.message)
        assert "DistributedSampler" in answer.message


def test_the_length_is_known_where_shards_are_equal_and_to_all_once_an_epoch_runs(pair):
    for said in pair.run(tasks.lengths, 41):
        # 21 examples each, of which two windows of 8 are full; then 41 and 40 of them.
        assert said[:5] == [2, 5, 2, 2, 2]
        assert "DistributedSampler" in said[5]
        assert said[6:] == [said[5], 5, said[5], 5]


def test_the_sampler_is_told_the_epoch_and_deals_out_anew(pair):
    for first, second in zip(*pair.run(tasks.orders, 2), strict=True):
        assert sorted(first + second) == list(range(32))
    first, second = pair.run(tasks.orders, 2)[0]
    assert first != second


def test_a_warning_says_if_every_rank_draws_all_examples_and_remembers_them(pair):
    said = pair.run(tasks.open_unsharded, sb.auto())
    assert re.search("each of the 2 ranks draws all 32 .*DistributedSampler.* to auto,", said[0])
    assert said[1] == ""  # rank 0 says it for all
    assert pair.run(tasks.open_unsharded, SB) == ["", ""]  # each rank may have other data


@pytest.mark.parametrize(
    "strategy",
    [sb.auto(), sb.infobatch(), sb.selective_backprop(1 / 3, draw="bernoulli")],
    ids=lambda strategy: strategy.name,
)
def test_ranks_have_the_same_learning_rate_at_each_step_whatever_they_have_drawn(pair, strategy):
    (seen, weights, resumed), other = pair.run(tasks.follow_a_schedule, strategy)
    assert (seen, weights, resumed) == other
    assert [come for *_, come in seen] == [round(done * 6 * 19) for _, done, come in seen]
    assert resumed[0] == resumed[1] > 100


def test_ranks_of_other_groups_are_not_waited_for(processes):
    answers = processes.form(4).run(tasks.train_apart, 64)
    assert [batches for batches, _ in answers] == [8, 8, 4, 4]
    histories = [recent for _, recent in answers]
    assert histories[0] == histories[1] != histories[2] == histories[3]


def test_a_group_that_does_not_hold_the_process_is_refused(pair):
    assert "does not belong to" in pair.run(tasks.refuse_group)[1]


def test_steps_rank_against_the_scores_of_all_ranks(pair):
    sizes = (8, 6)
    answers = pair.run(tasks.step_together, sizes, 4)
    scores = [
        [1000.0 * step + 100.0 * rank + row for row in range(size)]
        for step in range(4)
        for rank, size in enumerate(sizes)
    ]
    for rank, answer in enumerate(answers):
        assert sorted(answer["recent"]) == sorted(flat(scores)[-16:])
        assert answer["recent"] == answers[0]["recent"]
        # Once how they were built, then a message a step; a rank's rows are ranked within it.
        assert answer["sent"][1:] == [4 * (max(sizes) + 5)] * 4
        assert [len(rows) for rows in answer["kept"]] == [sizes[rank] // 2] * 4


@pytest.mark.parametrize("kind", ["LossError", "BatchError"])
def test_a_step_that_fails_on_one_rank_fails_on_all(pair, kind):
    failing, other = pair.run(tasks.fail_to_step, 0, kind)
    assert failing.kind == kind
    assert other.kind == "LoaderError"
    assert "rank 0 of 2" in other.message


def test_streams_end_together_with_the_shortest(pair):
    (short, _), (long, beyond) = pair.run(tasks.stream, (10, 40))
    assert [len(batch) for batch in long[0]] == [4, 4, 4]
    assert [len(batch) for batch in short[0]] == [4, 4, 2]
    # Windows of 8: the short stream has one in an epoch; the long one had a batch in hand.
    assert len(short[1]) == len(long[1]) == 1
    assert long[1] == [[12, 13, 14, 15]]
    assert beyond == 0  # which nobody can know of a stream
