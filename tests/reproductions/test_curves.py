import pandas as pd
import pytest
from fixture_cases import share_of_cases
from hypothesis import given
from hypothesis import strategies as st

from reproductions.jiang2019.curves import front, share, share_of_budgets

PLACES = st.lists(
    st.tuples(st.sampled_from(["sb", "stale"]), st.integers(0, 9), st.integers(0, 9)),
    max_size=12,
)


def framed(places):
    return pd.DataFrame(places, columns=["family", "time", "error"]).astype({"error": float})


@share_of_cases(1 / 2)
@given(PLACES)
def test_the_front_is_what_no_other_place_beats_in_one_and_equals_in_the_other(places):
    kept = front(framed(places))
    expected = {
        one[1:]
        for one in places
        if not any(
            other[1] <= one[1] and other[2] <= one[2] and other[1:] != one[1:] for other in places
        )
    }
    assert set(zip(kept.time, kept.error, strict=True)) == expected
    assert len(kept) == sum(one[1:] in expected for one in places)


def test_shares_are_of_the_front_alone():
    places = framed([("sb", 1, 9), ("stale", 2, 5), ("sb", 3, 7), ("sb", 4, 1)])
    assert share(places, ["stale"]) == pytest.approx(100 / 3)
    assert share(places, ["sb", "stale"]) == 100
    assert share(framed([]), ["sb"]) == 0


def test_equal_places_and_equal_errors_are_shared_whoever_is_listed_first():
    places = [("sb", 1, 9), ("stale", 1, 9), ("stale", 2, 5)]
    for each in (places, places[::-1]):
        assert share(framed(each), ["sb"]) == pytest.approx(25)
        # Until the last moment both are at 9; then Stale-SB leads alone.
        assert share_of_budgets(framed(each), ["sb"]) == pytest.approx(50, abs=0.5)
