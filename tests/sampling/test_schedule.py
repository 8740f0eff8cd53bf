"""When selection acts, and that no value of any option quietly switches it off."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unhooked import unhooked

import selective_backprop as sb


@pytest.mark.parametrize("warmup", [0, 2])
def test_selection_acts_from_the_first_batch_after_the_warm_up_to_the_last(warmup):
    schedule = sb.Schedule(warmup)
    assert not schedule.uses_fractions
    assert [schedule.selects(epoch, None) for epoch in range(9)] == [n >= warmup for n in range(9)]


def test_selection_acts_from_start_to_just_before_end():
    schedule = sb.Schedule(start=0.25, end=0.75)
    assert schedule.uses_fractions
    acts = {share: schedule.selects(0, share) for share in (0.0, 0.24, 0.25, 0.5, 0.74, 0.75, 1.0)}
    assert [share for share, selects in acts.items() if selects] == [0.25, 0.5, 0.74]


def test_warm_up_and_start_must_both_be_over():
    schedule = sb.Schedule(warmup_epochs=1, start=0.5)
    assert not schedule.selects(0, 0.6)
    assert not schedule.selects(1, 0.4)
    assert schedule.selects(1, 0.6)
    assert not schedule.selects(3, progress=None)  # of unknown training


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"warmup_epochs": 0.5}, "start="),
        ({"start": 0.5, "end": 0.5}, "end=0.5"),
        ({"start": 0.6, "end": 0.5}, "end=0.5"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(values, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.Schedule(**values)


@pytest.mark.parametrize(
    ("schedule", "epochs", "message"),
    [
        (sb.Schedule(warmup_epochs=3, end=0.5), 6, "nothing to select in 6 epochs"),
        (sb.Schedule(start=0.999), 3, "none of 30 batches"),
    ],
)
def test_a_training_without_selection_is_refused_with_the_reason(schedule, epochs, message):
    with pytest.raises(sb.ConfigurationError, match=message):
        schedule.check_length(epochs, batches=10)
    schedule.check_length(None, batches=10)


@given(
    st.integers(0, 6),
    st.floats(0.01, 1.0),
    st.integers(1, 12),
    st.floats(0, 0.99),
    st.integers(1, 12),
)
@example(0, 0.32, 1, 0.875, 25)  # 0.28 times 25 is above 7 in floating point
@example(0, 1.0, 1, 1e-12, 1)
def test_a_length_is_accepted_exactly_where_some_batch_is_selected_from(
    warmup, end, epochs, start, batches
):
    schedule = sb.Schedule(warmup, start * end, end)
    moments = [
        schedule.selects(epoch, (epoch + drawn / batches) / epochs)
        for epoch in range(epochs)
        for drawn in range(batches)
    ]
    try:
        schedule.check_length(epochs, batches)
    except sb.ConfigurationError:
        assert not any(moments)
    else:
        assert any(moments)
