"""An average of the last scores, in which newer ones count for more."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import weighted_average

import selective_backprop as sb

SCORES = st.floats(-100, 100, width=32)


@given(
    st.lists(st.lists(SCORES, max_size=4), min_size=1, max_size=6), st.sampled_from([0.0, 0.3, 0.9])
)
def test_newer_scores_weigh_more_and_only_what_is_known_counts(columns, decay):
    ledger = sb.scorers.Ledger(len(columns), depth=4)
    for example, column in enumerate(columns):
        for epoch, score in enumerate(reversed(column)):
            ledger.scored.file(torch.tensor([example]), torch.tensor([score]), epoch)
    found = sb.scorers.Average(decay, depth=4).predict(ledger.scored.observe(), epoch=9)
    assert found.dtype == np.float32
    for column, prediction in zip(columns, found.tolist(), strict=True):
        if column:
            expected = weighted_average(column, decay)
            assert prediction == pytest.approx(expected, rel=1e-5, abs=1e-4)
        else:
            assert math.isnan(prediction)
