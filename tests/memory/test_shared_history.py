"""What a rank files by itself is taken back, and what all have filed put in its place."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import LossHistory

import selective_backprop as sb
from selective_backprop._memory.history import SharedHistory

FILED = st.lists(st.lists(st.integers(0, 99).map(float), max_size=9), max_size=5)


@given(before=FILED, own=FILED, most=st.integers(1, 12), capacity=st.integers(1, 20))
def test_what_is_retracted_leaves_no_trace_and_the_newest_of_it_is_returned(
    before, own, most, capacity
):
    history = sb.selectors.History(capacity)
    shared = SharedHistory(history, most, None)
    for scores in before:
        history.file(torch.tensor(scores))
    kept = history.state_dict()
    for scores in own:
        shared.file(torch.tensor(scores))
    flat = [score for scores in own for score in scores]
    assert [score for scores in shared.retract() for score in scores.tolist()] == flat[-most:]
    assert history.filed == kept["filed"]
    ring = history.state_dict()["ring"]
    assert (ring is None) == (kept["ring"] is None)
    assert ring is None or torch.equal(ring, kept["ring"])
    assert shared.retract() == []


@given(own=FILED, others=FILED, capacity=st.integers(1, 20))
def test_a_window_is_ranked_against_itself_until_all_ranks_have_filed(own, others, capacity):
    history = sb.selectors.History(capacity)
    shared = SharedHistory(history, 9, None)
    plain = LossHistory(capacity)
    for mine, theirs in zip(own, others, strict=False):
        shared.file(torch.tensor(mine))
        tentative = LossHistory(capacity)
        tentative.add([*plain.losses, *mine])
        assert sorted(history.recent.tolist()) == sorted(tentative.losses)
        assert torch.equal(torch.cat([torch.empty(0), *shared.retract()]), torch.tensor(mine))
        shared.settle([torch.tensor(mine), torch.tensor(theirs)])
        plain.add([*mine, *theirs])
        assert sorted(history.recent.tolist()) == sorted(plain.losses)
