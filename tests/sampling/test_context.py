"""What a scorer or a selector may know."""

from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb

sizes = st.integers(1, 300)


@given(batch=sizes, more=st.integers(0, 900), candidates=st.integers(1, 1500))
def test_candidates_yield_their_share_rounded_and_at_least_one_row(batch, more, candidates):
    window = batch + more
    context = sb.scorers.Context(batch_size=batch, window=window)
    quota = context.quota(candidates)
    assert 1 <= quota <= candidates
    assert quota == 1 or abs(quota - candidates * batch / window) <= 0.5
    assert (context.quota(window), context.quota(0)) == (batch, 0)
    assert sb.scorers.Context(batch_size=batch, window=None).quota(candidates) == candidates
