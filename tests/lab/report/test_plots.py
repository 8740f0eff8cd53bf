import json
import math

import plotly.graph_objects as go
import pytest
from fixture_runs import fixture_run, fixture_seeds
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop.lab.analysis.grouping import gather
from selective_backprop.lab.report.pareto import front, pareto_plot
from selective_backprop.lab.report.plots import (
    AXES,
    error_plot,
    final_plot,
    phase_plot,
)


def runs_of(*lengths):
    return [
        run
        for epochs in lengths
        for name in ("traditional", "selective-backprop")
        for run in fixture_seeds(
            name, [5.0, 6.0, 7.0], cost=float(epochs), config={"epochs": epochs}
        )
    ]


def plots_of(runs):
    comparison = gather(runs)
    return [
        plot
        for plot in (
            final_plot(comparison),
            error_plot(comparison),
            pareto_plot(comparison),
            phase_plot(comparison),
        )
        if plot
    ]


def crowd(**changes):
    """Eleven arms that end the lower the later their name, and one that ends highest."""
    runs = [fixture_run("traditional", errors=[50.0, 40.0], **changes)]
    return runs + [fixture_run(f"arm {i:2}", errors=[50.0, 20.0 - i], **changes) for i in range(11)]


ODD = [
    [fixture_run(finished=False, upto=2)],
    [fixture_run(finished=False, upto=0)],
    [fixture_run("only")],
    [fixture_run(errors=[0.0, 0.0])],
    [fixture_run(errors=[50.0, math.nan]), fixture_run(seed=1, errors=[50.0, 5.0])],
]


@pytest.mark.parametrize("runs", [runs_of(10), runs_of(3, 10), crowd(), *ODD], ids=range(8))
def test_plotly_accepts_every_figure_on_every_axis_and_scale(runs):
    for plot in plots_of(runs):
        json.dumps(plot.as_json(), allow_nan=False)
        go.Figure(plot.data, plot.layout)
        for choice in plot.choices.values():
            y = [choice.get("y", {}).get(i, trace["y"]) for i, trace in enumerate(plot.data)]
            assert [len(x) for x in choice["x"]] == [len(values) for values in y]
        for scale in plot.scales.values():
            go.Figure(plot.data, plot.layout | {"yaxis": plot.layout["yaxis"] | scale})


def test_a_crowd_s_final_errors_stand_in_a_row_each_the_lowest_first():
    plot = final_plot(gather(crowd()))
    [trace] = plot.data
    assert trace["y"] == [*(f"arm {i:2}" for i in range(10, -1, -1)), "traditional"]
    assert trace["x"] == [*(20.0 - i for i in range(10, -1, -1)), 40.0]
    assert len(set(map(str, trace["marker"]["color"]))) > 1
    assert final_plot(gather(runs_of(10))) is None


def test_of_a_crowd_the_curves_of_traditional_and_those_that_end_lowest_are_shown_at_first():
    short = {"cost": 5.0, "config": {"epochs": 5}}
    expected = {"traditional", *(f"arm {i:2}" for i in range(6, 11))}
    for runs in (crowd(), [*crowd(), *crowd(**short)]):
        comparison = gather(runs)
        several = len(comparison.lengths) > 1
        shown = {entry.label for entry in error_plot(comparison).legend if entry.shown}
        assert shown == {f"{name} @ 10" if several else name for name in expected}
    pareto = pareto_plot(comparison)
    expected |= {"front"}
    assert {entry.label for entry in pareto.legend if entry.shown} == expected
    assert {trace["legendgroup"] for trace in pareto.data if trace["visible"]} == expected


def test_a_line_runs_through_the_means_and_its_band_around_the_interval():
    band, line = error_plot(gather(fixture_seeds("traditional", [5.0, 6.0, 7.0]))).data
    assert line["y"] == pytest.approx([50.0, 20.0, 6.0])
    assert line["x"] == pytest.approx([10 / 3, 20 / 3, 10.0])
    half = 2.484
    assert band["y"] == pytest.approx([50.0, 20.0, 6 + half, 6 - half, 20.0, 50.0], abs=1e-3)
    assert band["x"] == pytest.approx([*line["x"], *reversed(line["x"])])


def test_one_legend_entry_switches_line_and_band():
    plot = error_plot(gather(runs_of(10)))
    groups = [trace["legendgroup"] for trace in plot.data]
    assert groups == ["traditional", "traditional", "selective-backprop", "selective-backprop"]
    assert [entry.label for entry in plot.legend] == ["traditional", "selective-backprop"]


def test_the_axes_are_cost_seconds_backward_passes_updates_and_candidates():
    plot = error_plot(gather([fixture_run()]))
    assert list(plot.choices) == list(AXES)
    assert list(AXES) == ["cost", "seconds", "trained", "updates", "candidates"]
    ends = {axis: choice["x"][1][-1] for axis, choice in plot.choices.items()}
    assert ends == {
        "cost": 10.0,
        "seconds": 20.0,
        "trained": 3200.0,
        "updates": 100.0,
        "candidates": 6400.0,
    }


@pytest.mark.parametrize(
    ("errors", "scales"),
    [
        ([50.0, 5.0], ["log", "linear"]),
        ([9.0, 5.0], ["linear", "log"]),
        ([9.0, 0.0], ["linear"]),
        ([math.nan], []),
    ],
)
def test_the_error_axis_is_logarithmic_where_that_helps(errors, scales):
    assert list(error_plot(gather([fixture_run(errors=errors)])).scales) == scales


def test_a_wide_band_does_not_flatten_the_curves_and_stays_above_zero():
    runs = [fixture_run(seed=0, errors=[50.0, 1.0]), fixture_run(seed=1, errors=[50.0, 9.0])]
    plot = error_plot(gather(runs))
    assert min(plot.data[0]["y"]) > 0
    low, high = plot.scales["linear"]["range"]
    assert (low, high) == pytest.approx((2.3, 52.7))


def test_unfinished_runs_are_lines_of_their_own():
    plot = error_plot(gather([fixture_run(), fixture_run("other", finished=False, upto=2)]))
    line = plot.data[-1]
    assert line["legendgroup"] == "other, seed 0, unfinished"
    assert len(line["y"]) == 2
    assert line["line"]["dash"] == "dot"


def test_every_length_of_an_arm_is_a_point_of_cost_and_final_error():
    traditional, _, _ = pareto_plot(gather(runs_of(3, 10))).data
    assert traditional["customdata"] == [3.0, 10.0]
    assert traditional["x"] == [3.0, 10.0]
    assert traditional["y"] == pytest.approx([6.0, 6.0])
    assert traditional["error_y"]["array"] == pytest.approx([2.484, 2.484], abs=1e-3)
    assert pareto_plot(gather([fixture_run(finished=False)])) is None


def test_arms_of_equal_budgets_stand_beside_each_other():
    config = {"budget": 10.0, "budget_unit": "cost"}
    plot = pareto_plot(gather([fixture_run(arm, config=config) for arm in ("a", "b")]))
    left, right, _ = (trace["x"] for trace in plot.data)
    assert left < [10.0] < right
    assert left + right == pytest.approx([10.0, 10.0], abs=0.1)


def test_the_front_is_drawn_through_what_no_arm_beats_on_the_axis_that_is_chosen():
    runs = [
        fixture_run("traditional", errors=[50.0, 4.0], cost=10.0, seconds=10.0),
        fixture_run("good", errors=[50.0, 5.0], cost=4.0, seconds=12.0),
        fixture_run("beaten", errors=[50.0, 6.0], cost=5.0, seconds=5.0),
        fixture_run("cheap", errors=[50.0, 9.0], cost=2.0, seconds=2.0),
    ]
    plot = pareto_plot(gather(runs))
    drawn = plot.data[-1]
    assert list(zip(drawn["x"], drawn["y"], strict=True)) == [(2.0, 9.0), (4.0, 5.0), (10.0, 4.0)]
    choice = plot.choices["seconds"]
    at = len(plot.data) - 1
    assert list(zip(choice["x"][at], choice["y"][at], strict=True)) == [
        (2.0, 9.0),
        (5.0, 6.0),
        (10.0, 4.0),
    ]
    assert list(plot.choices) == ["cost", "seconds", "trained"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_the_front_is_what_comparing_every_two_places_leaves(places):
    expected = {
        one
        for one in places
        if not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in places)
    }
    assert front(places) == sorted(expected)


def test_phases_are_stacked_per_arm():
    plot = phase_plot(gather(runs_of(10)))
    assert [trace["name"] for trace in plot.data][:3] == ["load", "score", "select"]
    assert plot.data[0]["y"] == ["traditional", "selective-backprop"]
    assert plot.data[0]["x"] == [0.5, 0.5]
    assert plot.layout["barmode"] == "stack"


def test_without_a_finished_run_no_time_is_shown():
    assert phase_plot(gather([fixture_run(finished=False)])) is None


def test_names_that_look_like_markup_are_shown_as_they_are():
    name = '<a href="x">b</a>&'
    for plot in plots_of([fixture_run(name), fixture_run(name, config={"epochs": 3}, cost=3.0)]):
        shown = json.dumps([[trace.get("name"), trace["y"]] for trace in plot.data])
        assert "<a" not in shown
        assert "&lt;a href=" in shown


def test_a_tangle_of_lengths_starts_with_the_longest_that_rival_each_other():
    def shown(runs):
        plot = error_plot(gather(runs))
        visible = {trace["legendgroup"] for trace in plot.data if trace["visible"]}
        assert visible == {entry.label for entry in plot.legend if entry.shown}
        return visible

    assert len(shown(runs_of(3, 6, 10))) == 6
    assert shown(runs_of(2, 3, 6, 10)) == {"traditional @ 10", "selective-backprop @ 10"}
    alone = fixture_run(config={"epochs": 30}, cost=30.0)
    assert shown([*runs_of(3, 6, 10), alone]) == {"traditional @ 10", "selective-backprop @ 10"}
    assert len(shown([fixture_run(config={"epochs": e}) for e in range(1, 9)])) == 8
