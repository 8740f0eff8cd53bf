import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib
import pytest
from fixture_runs import fixture_comparison, fixture_point, fixture_run, fixture_seeds
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from selective_backprop_lab.analysis.comparison import arms
from selective_backprop_lab.report.figures import differences, draw_comparison
from selective_backprop_lab.report.panels import (
    LINE,
    ceiling,
    phase_table,
    scale_error,
    span,
    spread,
    styles,
)
from selective_backprop_lab.strategies import STRATEGIES


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


def test_a_figure_names_all_that_it_shows_and_is_the_same_each_time(drawn, tmp_path):
    names, ends = ("traditional", "selective-backprop"), [5.0, 6.0, 7.0]
    runs = [run for name in names for run in fixture_seeds(name, ends)]
    before = dict(matplotlib.rcParams)
    text = drawn(runs)
    words = ["traditional", "selective-backprop", "cost, in passes of plain training", "backward"]
    words += ["Where the time went", "Final test error (%) of whole runs", "95 % t-interval"]
    for word in (*words, "wall seconds", "fixture-data", "fixture-net", "seeds 0 to 2"):
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


def fixture_arms(**finals):
    runs = [run for name, own in finals.items() for run in fixture_seeds(name, own)]
    return fixture_comparison([*fixture_seeds("traditional", [5.0, 5.1, 4.9]), *runs])


def test_differences_to_traditional_stand_in_a_row_each_the_lowest_first_with_their_intervals():
    [axes] = differences(fixture_arms(worse=[6.0, 6.1, 5.8], better=[4.0, 4.1, 3.8])).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["better", "worse"]
    bars = [bar.lines[2][0].get_segments()[0] for bar in axes.containers]
    ends = [(bar[0][0], bar[1][0]) for bar in bars]
    assert ends[0] == pytest.approx((-1.033 - 0.143, -1.033 + 0.143), abs=1e-3)
    assert ends[1] == pytest.approx((0.967 - 0.143, 0.967 + 0.143), abs=1e-3)
    for name in ("traditional", "other"):  # with which there is nothing to compare
        assert differences(fixture_comparison(fixture_seeds(name, [5.0, 6.0, 7.0]))) is None


def test_below_three_seeds_a_difference_has_no_interval_and_one_far_off_is_a_number():
    near = {f"arm {i}": [5.0 + i / 5, 5.1 + i / 5] for i in range(5)}
    [axes] = differences(fixture_arms(**near, far=[50.0, 50.1])).axes
    for bar in axes.containers:
        (start, end) = bar.lines[2][0].get_segments()[0]
        assert start[0] == end[0]
    assert [text.get_text() for text in axes.texts] == ["+45.0 ▸"]
    assert axes.get_xlim()[1] < 2


def look(*names):
    return styles(fixture_comparison([fixture_run(name) for name in names]))


def test_every_arm_there_is_has_a_colour_of_its_own():
    alone = {name: look(name)[name].colour for name in STRATEGIES}
    together = {name: style.colour for name, style in look(*STRATEGIES).items()}
    assert alone.items() <= {**together}.items()
    assert len(set(together.values())) == len(STRATEGIES)


def test_lengths_of_an_arm_share_its_colour_and_differ_in_dashes():
    runs = [fixture_run(config={"epochs": epochs}, cost=float(epochs)) for epochs in (3, 10)]
    long, short = styles(fixture_comparison(runs)).values()
    assert long.colour == short.colour
    assert (long.dash, short.dash) == ("solid", "dash")


def test_seconds_per_phase_are_means_over_runs_in_the_order_of_the_work_and_none_is_lost():
    point = fixture_point(1.0, phases={"load": 1.5, "proxy": 4.0, "nothing": 0.0})
    runs = [fixture_run(seed=seed, errors=[5.0]) for seed in range(2)]
    runs[1] = replace(runs[1], points=(point,))
    comparison = fixture_comparison([*runs, fixture_run("late", finished=False)])
    found = phase_table(arms(comparison).values())
    assert list(found) == ["load", "score", "select", "forward", "backward", "step", "proxy"]
    assert list(found["load"]) == [1.0, 0.0]
    assert found.loc[0, "proxy"] == found.loc[0, "backward"] == 2.0


def test_an_axis_ends_below_what_lies_far_above_the_rest():
    assert ceiling([12.0, 12.5, 13.0, 14.0, 53.0]) == 14.0
    assert ceiling([12.0, 12.5, 13.0, 14.0, math.nan]) == 14.0
    assert ceiling([5.0, 5.1, 9.0]) == 9.0
    assert ceiling([5.0, 5.0, 5.0, 5.0, 9.0]) == 9.0
    assert math.isnan(ceiling([]))


def test_an_axis_shows_means_alone_unless_intervals_are_asked_for():
    axes = Figure().add_subplot()
    scale_error(axes, span([9.0, 5.0, math.nan]))
    assert axes.get_ylim() == (4.76, 9.24)
    shown = span([9.0, 5.0], [1.0, 12.0])
    assert (shown.low, shown.high) == (2.5, 12.0)
    assert span([math.nan]) is None


def test_an_axis_is_logarithmic_by_the_means_where_it_can_be():
    assert span([50.0, 5.0]).wide
    assert not span([9.0, 5.0], [0.1, 100.0]).wide
    assert not span([9.0, 0.0]).wide
