from dataclasses import replace

import pandas as pd
from fixture_cases import share_of_cases
from fixture_papers import panel_of
from fixture_runs import fixture_seeds
from hypothesis import given
from hypothesis import strategies as st

from reproductions.jiang2019.curves import draw_errors, draw_front, front
from reproductions.measures import Evidence

PLACE = st.tuples(st.sampled_from(["sb", "stale"]), st.integers(0, 9), st.integers(0, 9))


def framed(places):
    return pd.DataFrame(places, columns=["family", "time", "error"]).astype({"error": float})


@share_of_cases(1 / 2)
@given(st.lists(PLACE, max_size=12))
def test_the_front_is_what_no_other_place_beats_in_one_and_equals_in_the_other(places):
    kept = front(framed(places))
    seen = {place[1:] for place in places}
    expected = {
        one for one in seen if not any(t <= one[0] and e <= one[1] for t, e in seen - {one})
    }
    assert set(zip(kept.time, kept.error, strict=True)) == expected
    assert len(kept) == sum(one[1:] in expected for one in places)


def shown(*keys, code=None):
    """A panel of strategies of which Kath18 trained on all that it was given."""
    runs = {key: fixture_seeds(key, (10.0, 11.0, 12.0), device="cpu") for key in keys}
    panel = panel_of(**runs)
    panel.runs.loc[panel.runs.key == "kath18", "trained"] = panel.runs.candidates
    if code:
        panel.runs.loc[panel.runs.key != "traditional", "code"] = code
    return panel


def words_of(drawing):
    return [{text.get_text() for text in axes.texts} for axes in drawing.axes if axes.axison]


def test_what_trained_as_traditional_did_is_named_with_it_and_not_drawn_again():
    panel = shown("traditional", "sb", "kath18")
    (names,) = words_of(draw_errors(Evidence(None, (panel,)), axes=["updates"], marked=True))
    targets = {"1.1×", "1.2×", "1.4×"}
    assert names == {"Traditional = Kath18, 11.0 %", "SB, 11.0 %"} | targets
    apart = replace(panel, runs=panel.runs.copy())
    apart.runs.loc[apart.runs.key == "kath18", "error"] += 1.0
    (names,) = words_of(draw_errors(Evidence(None, (apart,)), axes=["updates"]))
    assert names == {"Traditional", "SB", "Kath18"}
    axes = draw_front(Evidence(None, (panel,))).axes[-1]
    assert [text.get_text() for text in axes.get_legend().texts] == ["Traditional", "SB"]


def test_nothing_is_drawn_along_seconds_that_do_not_compare():
    timed, untimed = shown("traditional", "sb"), shown("traditional", "sb", code="git 2")
    drawing = draw_errors(Evidence(None, (timed, untimed)), axes=["seconds", "cost"])
    drawn = [axes.get_xlabel() for axes in drawing.axes if axes.axison]
    assert [label.partition(" ")[0] for label in drawn] == ["CPU", "cost,", "cost,"]
