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
    ranks = pair.run(tasks.fill_up, masks, size, save)
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
