import math
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib
import pytest
from fixture_runs import fixture_run, fixture_seeds
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes

import selective_backprop as sb
from selective_backprop.lab.report.figures import draw_comparison
from selective_backprop.lab.report.panels import LINE, spread


def text_of(path):
    """Everything an SVG says, whatever line it says it on."""
    return " ".join(" ".join(ElementTree.parse(path).getroot().itertext()).split())


def arms(**changes):
    return [
        run
        for name in ("traditional", "selective-backprop")
        for run in fixture_seeds(name, [5.0, 6.0, 7.0], **changes)
    ]


def test_a_figure_names_arms_axes_phases_and_what_ran(tmp_path):
    draw_comparison(arms(), tmp_path / "deep" / "a.svg")
    text = text_of(tmp_path / "deep" / "a.svg")
    for word in (
        "traditional",
        "selective-backprop",
        "cost, in traditional epochs",
        "wall seconds",
        "Where the time went",
        "Final test error (%) of whole runs",
        "backward",
        "fixture-data",
        "fixture-net",
        "seeds 0 to 2",
        "95 % t-interval",
    ):
        assert word in text, word


def test_the_suffix_decides_the_format(tmp_path):
    draw_comparison([fixture_run(errors=[5.0])], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_records_give_the_same_file(tmp_path):
    one, other = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (one, other):
        draw_comparison([fixture_run(errors=[5.0])], path)
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(("seeds", "bands", "lines"), [(3, 4, 4), (2, 0, 4 + 8), (1, 0, 4)])
def test_below_three_seeds_the_seeds_are_drawn_and_no_band(
    monkeypatch, tmp_path, seeds, bands, lines
):
    drawn = Counter()
    for name in ("plot", "fill_between"):
        draw = getattr(Axes, name)

        def count(axes, *args, _name=name, _draw=draw, **more):
            # Leaders and dots at the ends of curves are no curves of three evaluations.
            drawn[_name] += len(args[0]) == 3 if isinstance(args[0], Sequence) else 0
            return _draw(axes, *args, **more)

        monkeypatch.setattr(Axes, name, count)
    runs = [
        run
        for name in ("traditional", "auto")
        for run in fixture_seeds(name, [5.0, 6.0, 7.0][:seeds])
    ]
    draw_comparison(runs, tmp_path / "a.svg")
    assert (drawn["fill_between"], drawn["plot"]) == (bands, lines)


def test_one_seed_is_said_and_matplotlibs_settings_and_pyplot_are_left_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    draw_comparison([fixture_run()], tmp_path / "a.svg")
    assert "One seed: the spread over seeds is unknown." in text_of(tmp_path / "a.svg")
    assert dict(matplotlib.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


@pytest.mark.parametrize(
    "runs",
    [
        [fixture_run(finished=False, upto=0)],
        [fixture_run(errors=[0.0, 0.0]), fixture_run("$x_{$ <&", errors=[50.0, math.nan])],
        [fixture_run(f"arm {i}", errors=[5.0, 5.0]) for i in range(11)],
    ],
    ids=["none", "zeros", "crowd"],
)
def test_odd_sets_are_drawn(tmp_path, runs):
    draw_comparison(runs, tmp_path / "a.svg")
    text = text_of(tmp_path / "a.svg")
    for run in runs:
        assert run.header.arm in text


def crowd(count, seeds=3, **changes):
    finals = range(5, 5 + seeds)
    return [
        run
        for number in range(count)
        for run in fixture_seeds(f"arm {number}", [number + final for final in finals], **changes)
    ]


def test_of_a_crowd_every_arm_has_a_row_and_those_that_end_lowest_have_curves(tmp_path):
    runs = [*crowd(11), *fixture_seeds("traditional", [20.0, 21.0, 22.0])]
    draw_comparison(runs, tmp_path / "a.svg")
    text = text_of(tmp_path / "a.svg")
    for word in ("Final test error (%) of whole runs", "Where the time went", "end lowest"):
        assert word in text, word
    # in a row each, and beside each of two panels with curves
    named = [text.count(f"arm {number}") for number in range(2, 11)]
    assert named == [3, 3, 3, 1, 1, 1, 1, 1, 1]
    assert text.count("traditional") == 3 + text.count("traditional epochs")


def test_nine_arms_are_no_crowd_and_ten_are(tmp_path):
    for count in (9, 10):
        draw_comparison(crowd(count, seeds=1), tmp_path / f"{count}.svg")
        assert ("end lowest" in text_of(tmp_path / f"{count}.svg")) == (count == 10)


def test_several_lengths_are_marked_each_and_says_who_is_unfinished(tmp_path):
    short = {"cost": 5.0, "config": {"epochs": 5}}
    runs = [*crowd(10), *crowd(10, **short), fixture_run("late", finished=False, upto=1)]
    draw_comparison(runs, tmp_path / "a.svg")
    text = text_of(tmp_path / "a.svg")
    for word in ("length 10", "length 5", "late (unfinished)", "hollow dots: 5 epochs"):
        assert word in text, word


def test_unfinished_runs_are_shown_as_such(tmp_path):
    runs = [fixture_run(errors=[9.0] * 3), fixture_run("other", finished=False, upto=1)]
    draw_comparison(runs, tmp_path / "a.svg")
    assert "other (unfinished)" in text_of(tmp_path / "a.svg")


def test_runs_that_cannot_be_compared_leave_no_file(tmp_path):
    with pytest.raises(sb.RecordError):
        draw_comparison([fixture_run(), fixture_run("a", config={"data": "b"})], tmp_path / "a.svg")
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.floats(-0.2, 1.2), max_size=9).map(sorted))
def test_labels_do_not_overlap_and_keep_their_order(heights):
    placed = spread(heights)
    assert len(placed) == len(heights)
    assert all(b - a >= LINE - 1e-9 for a, b in pairwise(placed))
    assert all(-1e-9 <= height <= 1 for height in placed)
