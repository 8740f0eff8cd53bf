import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib
import pytest
from fixture_runs import fixture_comparison, fixture_run, fixture_seeds
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes

from selective_backprop_lab.report.figures import differences, draw_comparison
from selective_backprop_lab.report.panels import LINE, spread


@pytest.fixture
def drawn(tmp_path):
    """Draws runs, and returns everything that the figure says, whatever line it says it on."""

    def draw(runs, **more):
        path = tmp_path / "deep" / "a.svg"
        draw_comparison(fixture_comparison(runs), path, **more)
        return " ".join(" ".join(ElementTree.parse(path).getroot().itertext()).split())

    return draw


def test_a_figure_of_two_machines_shows_no_seconds(drawn):
    elsewhere = fixture_seeds("other", [5.0], hardware={"cpu": "Another"})
    text = drawn([*fixture_seeds("traditional", [4.0]), *elsewhere])
    assert "wall seconds" not in text
    assert "seconds cannot be compared" in text
    assert "against cost" in text


def test_a_figure_names_strategies_axes_phases_and_what_ran_and_is_the_same_each_time(
    drawn, tmp_path
):
    runs = [
        run
        for name in ("traditional", "selective-backprop")
        for run in fixture_seeds(name, [5.0, 6.0, 7.0])
    ]
    before = dict(matplotlib.rcParams)
    text = drawn(runs)
    for word in (
        "traditional",
        "selective-backprop",
        "cost, in passes of plain training",
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
    assert dict(matplotlib.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()
    draw_comparison(fixture_comparison(runs), tmp_path / "b.svg")
    assert (tmp_path / "b.svg").read_bytes() == (tmp_path / "deep" / "a.svg").read_bytes()


def test_the_suffix_decides_the_format_and_an_older_figure_is_replaced(tmp_path):
    (tmp_path / "a.png").write_text("old")
    draw_comparison(fixture_comparison([fixture_run(errors=[5.0])]), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize(
    ("seeds", "bands", "lines", "said"),
    [
        (3, 4, 4, "bands and bars: 95 % t-interval"),
        (2, 0, 4 + 8, "thin: the seeds. There are no intervals below 3 seeds."),
        (1, 0, 4, "One seed: the spread over seeds is unknown."),
    ],
)
def test_below_three_seeds_the_seeds_are_drawn_and_no_band(
    monkeypatch, drawn, seeds, bands, lines, said
):
    calls = Counter()
    for name in ("plot", "fill_between"):
        draw = getattr(Axes, name)

        def count(axes, *args, _name=name, _draw=draw, **more):
            # Leaders and dots at the ends of curves are no curves of three evaluations.
            calls[_name] += isinstance(args[0], Sequence) and len(args[0]) == 3
            return _draw(axes, *args, **more)

        monkeypatch.setattr(Axes, name, count)
    names, finals = ("traditional", "auto"), [5.0, 6.0, 7.0][:seeds]
    text = drawn([run for name in names for run in fixture_seeds(name, finals)])
    assert (calls["fill_between"], calls["plot"]) == (bands, lines)
    assert said in text


def crowd(count, **changes):
    return [
        run
        for number in range(count)
        for run in fixture_seeds(f"arm {number}", [number + 5.0, number + 6.0], **changes)
    ]


def test_of_a_crowd_every_strategy_has_a_row_and_those_that_end_lowest_have_curves(drawn):
    text = drawn([*crowd(9), fixture_run("traditional", errors=[30.0])])
    # in a row each, and beside each of two panels with curves
    assert [text.count(f"arm {number}") for number in range(9)] == [3] * 5 + [1] * 4
    assert text.count("traditional") == 3
    assert "lowest strategies only" in text
    assert "lowest strategies only" not in drawn(crowd(9))  # which is no crowd


def test_an_error_far_above_the_rest_is_a_number_at_the_edge(drawn):
    assert "99.0 ▸" in drawn([*crowd(6), fixture_run("awful", errors=[99.0])])
    assert "▸" not in drawn(crowd(6))


def test_several_lengths_are_marked_each_and_unfinished_runs_are_named(drawn):
    short = {"cost": 5.0, "config": {"epochs": 5}}
    late = fixture_run("late", finished=False, upto=1)
    text = drawn([*crowd(2), *crowd(2, **short), late], axis="cpu_seconds")
    for word in ("length 10", "length 5", "late (unfinished)", "hollow dots: 5 epochs", "CPU s"):
        assert word in text, word


@given(st.lists(st.floats(-0.2, 1.2), max_size=9).map(sorted))
def test_labels_do_not_overlap_and_keep_their_order(heights):
    placed = spread(heights)
    assert len(placed) == len(heights)
    assert all(b - a >= LINE - 1e-9 for a, b in pairwise(placed))
    assert all(-1e-9 <= height <= 1 for height in placed)


def arms(**finals):
    runs = [run for name, own in finals.items() for run in fixture_seeds(name, own)]
    return fixture_comparison([*fixture_seeds("traditional", [5.0, 5.1, 4.9]), *runs])


def test_differences_to_traditional_stand_in_a_row_each_the_lowest_first_with_their_intervals():
    [axes] = differences(arms(worse=[6.0, 6.1, 5.8], better=[4.0, 4.1, 3.8])).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["better", "worse"]
    bars = [bar.lines[2][0].get_segments()[0] for bar in axes.containers]
    ends = [(bar[0][0], bar[1][0]) for bar in bars]
    assert ends[0] == pytest.approx((-1.033 - 0.143, -1.033 + 0.143), abs=1e-3)
    assert ends[1] == pytest.approx((0.967 - 0.143, 0.967 + 0.143), abs=1e-3)
    for name in ("traditional", "other"):  # with which there is nothing to compare
        assert differences(fixture_comparison(fixture_seeds(name, [5.0, 6.0, 7.0]))) is None


def test_below_three_seeds_a_difference_has_no_interval_and_one_far_off_is_a_number():
    near = {f"arm {i}": [5.0 + i / 5, 5.1 + i / 5] for i in range(5)}
    [axes] = differences(arms(**near, far=[50.0, 50.1])).axes
    for bar in axes.containers:
        (start, end) = bar.lines[2][0].get_segments()[0]
        assert start[0] == end[0]
    assert [text.get_text() for text in axes.texts] == ["+45.0 ▸"]
    assert axes.get_xlim()[1] < 2
