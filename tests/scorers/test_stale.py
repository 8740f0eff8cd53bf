"""Which remembered scores are still good, against a plain twin written from the paper."""

import math

import pytest
import torch
from fixture_memory import PREDICTED, RECORDED, STALE, begin
from hypothesis import given
from hypothesis import strategies as st
from reference import PlainLedger, remembered
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop._core.types import NO_TARGET

EXAMPLES = 7


FILINGS = st.lists(
    st.tuples(st.integers(0, 9), st.sets(st.integers(0, EXAMPLES - 1)), st.booleans()), max_size=8
)


@given(FILINGS, st.integers(2, 5), st.booleans(), st.booleans(), st.integers(0, 4))
def test_a_score_is_used_again_for_as_long_as_it_is_good(filings, epochs, spread, mixes, later):
    filings = sorted(filings, key=lambda filing: filing[0])
    ledger = sb.scorers.Ledger(EXAMPLES)
    scored, recorded = PlainLedger(EXAMPLES, 1), PlainLedger(EXAMPLES, 1)
    for number, (epoch, indices, takes) in enumerate(filings):
        keys, scores = sorted(indices), [float(number)] * len(indices)
        twin, column = (scored, ledger.scored) if takes else (recorded, ledger.recorded)
        twin.file(keys, scores, epoch)
        column.file(torch.tensor(keys, dtype=torch.int64), torch.tensor(scores), epoch)
    now = max((epoch for epoch, *_ in filings), default=0) + later
    found = begin(sb.scorers.Stale(sb.scorers.Forward(), epochs, spread, mixes), EXAMPLES).recall(
        ledger, now
    )
    expected = []
    for index in range(EXAMPLES):
        newest, other = scored.newest(index), recorded.newest(index)
        if mixes and other is not None and (newest is None or other[1] > newest[1]):
            newest = other
        expected.append(remembered(newest, index, now, epochs, spread=spread))
    if found is None:
        assert expected == [None] * EXAMPLES
    else:
        assert [None if math.isnan(score) else score for score in found.tolist()] == expected


def test_scores_that_are_good_for_one_epoch_are_never_used_again():
    ledger = sb.scorers.Ledger(EXAMPLES)
    ledger.scored.file(torch.arange(EXAMPLES), torch.ones(EXAMPLES), 0)
    assert begin(sb.scorers.Stale(sb.scorers.Forward(), 1), EXAMPLES).recall(ledger, 1) is None


def test_a_recorded_loss_that_is_not_a_number_counts_as_that_of_a_row_without_a_target():
    ledger = sb.scorers.Ledger(EXAMPLES)
    ledger.recorded.file(torch.arange(2), torch.tensor([1.0, math.nan]), 3)
    found = begin(sb.scorers.Stale(sb.scorers.Forward(), 3, recorded=True), EXAMPLES).recall(
        ledger, 4
    )
    assert found[:2].tolist() == [1.0, NO_TARGET]
    assert bool(found[2:].isnan().all())


@pytest.mark.parametrize("kind", [sb.scorers.Stale, sb.scorers.Predicted])
@pytest.mark.parametrize(
    "inner", [None, sb.selectors.Top(0.5), sb.scorers.Forward, STALE, PREDICTED, RECORDED]
)
def test_what_cannot_be_wrapped_is_refused(kind, inner):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=r"is no scorer|remembers scores"):
        kind(inner)
