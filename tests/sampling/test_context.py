"""What a scorer or a selector may know."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb

sizes = st.integers(1, 300)


@given(batch=sizes, more=st.integers(0, 900))
def test_a_full_window_yields_a_full_batch(batch, more):
    context = sb.scorers.Context(batch_size=batch, window=batch + more)
    assert context.quota(batch + more) == batch


@given(batch=sizes, more=st.integers(0, 900), candidates=st.integers(1, 1500))
def test_any_other_number_yields_its_share_rounded_and_at_least_one_row(batch, more, candidates):
    window = batch + more
    quota = sb.scorers.Context(batch_size=batch, window=window).quota(candidates)
    assert 1 <= quota <= candidates
    assert quota == 1 or abs(quota - candidates * batch / window) <= 0.5


def test_no_candidates_yield_no_rows():
    assert sb.scorers.Context(batch_size=4, window=12).quota(0) == 0


def test_without_a_window_every_candidate_may_stay():
    assert sb.scorers.Context(batch_size=4, window=None).quota(7) == 7


def test_a_context_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        sb.scorers.Context(batch_size=4, window=None).window = 12
