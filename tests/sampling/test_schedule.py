"""When selection acts, and that no value of any option quietly switches it off."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop._sampling.schedule import PlainBatchCadence


def test_by_default_selection_acts_from_the_first_batch_to_the_last():
    schedule = sb.Schedule()
    assert not schedule.uses_fractions
    assert all(schedule.selects(epoch, progress=None) for epoch in (0, 1, 1000))


def test_the_warm_up_counts_whole_epochs():
    schedule = sb.Schedule(warmup_epochs=2)
    assert [schedule.selects(epoch, None) for epoch in range(4)] == [False, False, True, True]


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
        ({"warmup_epochs": -1}, "warmup_epochs=-1"),
        ({"warmup_epochs": 0.5}, "start="),
        ({"warmup_epochs": math.nan}, "warmup_epochs=nan"),
        ({"warmup_epochs": math.inf}, "warmup_epochs=inf"),
        ({"start": -0.1}, "start=-0.1"),
        ({"start": 1.0}, "start=1.0"),
        ({"start": 0.5, "end": 0.5}, "end=0.5"),
        ({"start": 0.6, "end": 0.5}, "end=0.5"),
        ({"start": math.nan}, "start=nan"),
        ({"end": 0.0}, "end=0.0"),
        ({"end": 1.1}, "end=1.1"),
        ({"end": math.nan}, "end=nan"),
        ({"plain_every": 1}, "plain_every=1"),
        ({"plain_every": 0}, "plain_every=0"),
        ({"plain_every": -3}, "plain_every=-3"),
        ({"plain_every": 2.5}, "plain_every=2.5"),
        ({"plain_every": math.nan}, "plain_every=nan"),
        ({"plain_every": math.inf}, "plain_every=inf"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(values, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.Schedule(**values)


@pytest.mark.parametrize(
    ("schedule", "epochs"),
    [
        (sb.Schedule(warmup_epochs=5), 5),
        (sb.Schedule(warmup_epochs=1), 0.5),
        (sb.Schedule(warmup_epochs=3, end=0.5), 6),
    ],
)
def test_a_warm_up_that_leaves_nothing_to_select_is_refused(schedule, epochs):
    with pytest.raises(sb.ConfigurationError, match="nothing to select"):
        schedule.check_length(epochs, batches=10)


@pytest.mark.parametrize(
    ("schedule", "epochs"),
    [
        (sb.Schedule(warmup_epochs=5), None),
        (sb.Schedule(warmup_epochs=5), 5.5),
        (sb.Schedule(warmup_epochs=3, end=0.5), 7),
        (sb.Schedule(), 0.1),
    ],
)
@pytest.mark.parametrize("batches", [None, 10])
def test_a_warm_up_that_leaves_something_is_accepted(schedule, epochs, batches):
    schedule.check_length(epochs, batches)


@pytest.mark.parametrize(
    ("schedule", "epochs", "batches"),
    [
        (sb.Schedule(start=0.999), 3, 10),
        (sb.Schedule(start=0.31, end=0.39), 1, 10),
        (sb.Schedule(warmup_epochs=1, start=0.6, end=0.7), 2, 2),
    ],
)
def test_fractions_between_which_no_batch_falls_are_refused(schedule, epochs, batches):
    with pytest.raises(sb.ConfigurationError, match=f"none of {epochs * batches} "):
        schedule.check_length(epochs, batches)
    schedule.check_length(100 * epochs, batches)
    schedule.check_length(epochs, None)


@given(
    st.integers(0, 6),
    st.floats(0.01, 1.0),
    st.integers(1, 12),
    st.floats(0, 0.99),
    st.integers(1, 12),
)
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


@st.composite
def deals(draw: st.DrawFn) -> tuple[int, int, int, list[int]]:
    every = draw(st.integers(2, 12))
    batch = draw(st.integers(1, 64))
    window = batch + draw(st.integers(0, 300))
    sizes = draw(st.lists(st.integers(1, 200), min_size=1, max_size=200))
    return every, batch, window, sizes


@given(deals())
def test_interludes_never_stray_from_their_share_by_more_than_one_batch(deal):
    every, batch, window, sizes = deal
    share = batch / ((every - 1) * window + batch)
    cadence = PlainBatchCadence(every, batch_size=batch, window=window)
    seen = passed = 0
    for size in sizes:
        plain = cadence.next_is_plain(size)
        seen, passed = seen + size, passed + size * plain
        assert passed <= share * seen + 1e-9
        assert share * seen - passed < max(sizes) + 1e-9
    assert cadence.state == (seen, passed)


@given(st.integers(2, 12), st.integers(1, 64), st.integers(0, 300), st.integers(1, 200))
def test_interludes_leave_some_to_select_and_some_not(every, batch, more, size):
    window = batch + more
    cadence = PlainBatchCadence(every, batch_size=batch, window=window)
    cycle = (every - 1) * window + batch
    dealt = [cadence.next_is_plain(size) for _ in range(math.ceil(cycle / batch) + 1)]
    assert any(dealt)
    assert not all(dealt)


def test_one_training_batch_in_every_so_many_is_unselective():
    # 9 windows of 30 make 9 training batches of 10, an interlude of 10 makes the tenth
    cadence = PlainBatchCadence(10, batch_size=10, window=30)
    dealt = [cadence.next_is_plain(10) for _ in range(2800)]
    assert sum(dealt) == 100
    assert (2800 - sum(dealt)) * 10 // 30 == 900
    never = PlainBatchCadence(None, batch_size=10, window=30)
    assert not any(never.next_is_plain(10) for _ in range(100))


def test_a_copy_deals_on_by_itself():
    cadence = PlainBatchCadence(2, batch_size=4, window=4)
    first = [cadence.next_is_plain(4) for _ in range(5)]
    state = cadence.state
    copy = cadence.copy((0, 0))
    assert [copy.next_is_plain(4) for _ in range(3)] == first[:3]
    assert cadence.state == state
