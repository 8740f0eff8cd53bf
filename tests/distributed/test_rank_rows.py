"""Ranks that fill batches up with rows of their own step together, whoever has how many."""

import fixture_rank_models as tasks
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

MASKS = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=6, max_size=6)


@pytest.fixture(scope="module")
def pair(processes):
    return processes.form(2)


@given(masks=st.tuples(MASKS, MASKS), size=st.integers(1, 5), save=st.integers(0, 6))
@example(masks=([[True] * 6] * 6, [[False]] * 5 + [[True] * 6]), size=2, save=3)
@settings(max_examples=10)
def test_a_batch_is_handed_out_when_all_ranks_have_one(pair, masks, size, save):
    ranks = pair.run(tasks.fill_up, masks, size, None, save)
    total = [0, 0]
    for call in range(6):
        for rank in range(2):
            total[rank] += sum(masks[rank][call])
        for found, _ in ranks:
            assert sum(map(len, found[: call + 1])) == min(total) // size
    for rank, (found, gradients) in enumerate(ranks):
        kept = [flag for mask in masks[rank] for flag in mask]
        wanted = [1000.0 * rank + place for place, flag in enumerate(kept) if flag]
        batches = [rows for pairs in found for rows, _ in pairs]
        assert [row for rows in batches for row in rows] == wanted[: min(total) // size * size]
        assert all(weights == [1.0] * size for pairs in found for _, weights in pairs)
        assert gradients == ranks[0][1]


def test_after_so_many_refills_the_mean_is_over_the_rows_of_all_ranks(pair):
    masks = (
        [[1, 0], [1, 1], [0, 0], [0, 0], [1, 1], [0, 1]],
        [[0, 0], [0, 0], [0, 0], [0, 0], [1, 0], [0, 0]],
    )
    (one, gradients), (two, same) = pair.run(tasks.fill_up, masks, 8, 2, 3)
    assert one[0] == one[2] == one[3] == one[4] == []  # a wait, or nothing to train on
    assert one[1] == [([0.0, 2.0, 3.0], [2.0] * 3)]
    assert two[1] == [([1002.0], [0.0])]  # which it steps with
    assert one[5] == [([8.0, 9.0, 11.0], [1.5] * 3)]
    assert two[5] == [([1008.0], [0.5])]
    assert gradients == same == pytest.approx([5 / 3, (8 + 9 + 11 + 1008) / 4])


def test_of_a_rank_that_has_more_than_a_batch_the_others_wait(pair):
    masks = ([[1] * 5, [0] * 5, [0] * 5, [0] * 5], [[0, 0, 1], [0] * 3, [0] * 3, [0] * 3])
    (one, _), (two, _) = pair.run(tasks.fill_up, masks, 2, 3, 2)
    assert one == [[], [], [([0.0, 1.0], [pytest.approx(4 / 3)] * 2)], []]
    assert two == [[], [], [([1002.0], [pytest.approx(2 / 3)])], []]
