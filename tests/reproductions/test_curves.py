from fixture_cases import share_of_cases
from hypothesis import given
from hypothesis import strategies as st

from reproductions.jiang2019.curves import Place, front, share

PLACES = st.lists(
    st.builds(Place, st.sampled_from(["sb", "stale"]), st.integers(0, 9), st.integers(0, 9)),
    max_size=12,
)


@share_of_cases(1 / 2)
@given(PLACES)
def test_the_front_is_what_no_other_place_beats_in_one_and_equals_in_the_other(places):
    kept = {(place.time, place.error) for place in front(places)}
    expected = {
        (one.time, one.error)
        for one in places
        if not any(
            other.time <= one.time
            and other.error <= one.error
            and (other.time, other.error) != (one.time, one.error)
            for other in places
        )
    }
    assert kept == expected
    assert len(front(places)) == len(expected)


def test_shares_are_of_the_front_alone():
    places = [Place("sb", 1, 9), Place("stale", 2, 5), Place("sb", 3, 7), Place("sb", 4, 1)]
    assert share(places, ["stale"]) == 100 / 3
    assert share(places, ["sb", "stale"]) == 100
    assert share([], ["sb"]) == 0
