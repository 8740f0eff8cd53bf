import math

import pandas as pd
import pytest
from fixture_runs import fixture_run, fixture_seeds
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop_lab.analysis.grouping import gather
from selective_backprop_lab.report.plots import (
    difference_plot,
    error_plot,
    front,
    pareto_plot,
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
    makers = (difference_plot, error_plot, pareto_plot, phase_plot)
    return [plot for plot in (make(gather(runs)) for make in makers) if plot]


def crowd(**changes):
    """Eleven strategies that end the lower the later their name, and one that ends highest."""
    runs = [fixture_run("traditional", errors=[50.0, 40.0], **changes)]
    return runs + [fixture_run(f"arm {i:2}", errors=[50.0, 20.0 - i], **changes) for i in range(11)]


def menus(plot):
    """What each entry of a figure's menus changes: of its traces, and of its layout."""
    return {
        button.label: list(button.args)
        for menu in plot.layout.updatemenus
        for button in menu.buttons
    }


def shown(plot):
    return {trace.name for trace in plot.data if trace.visible is True and trace.name}


ODD = [
    [fixture_run(finished=False, upto=2)],
    [fixture_run(finished=False, upto=0)],
    [fixture_run("only")],
    [fixture_run(errors=[0.0, 0.0])],
    [fixture_run(errors=[50.0, math.nan]), fixture_run(seed=1, errors=[50.0, 5.0])],
]


@pytest.mark.parametrize("runs", [runs_of(10), runs_of(3, 10), crowd(), *ODD], ids=range(8))
def test_plotly_takes_every_entry_of_every_menu(runs):
    for plot in plots_of(runs):
        assert plot.to_html(include_plotlyjs=False)
        for args in menus(plot).values():
            change, layout = args if len(args) == 2 else ({}, args[0])
            data = list(plot.data)
            x, y = (change.get(key, [trace[key] for trace in data]) for key in "xy")
            assert [len(each) for each in x] == [len(each) for each in y]
            plot.update(layout=layout)


def arms(**finals):
    runs = [run for name, own in finals.items() for run in fixture_seeds(name, own)]
    return gather([*fixture_seeds("traditional", [5.0, 5.1, 4.9]), *runs])


def test_differences_to_traditional_stand_in_a_row_each_the_lowest_first_with_their_intervals():
    plot = difference_plot(arms(worse=[6.0, 6.1, 5.8], better=[4.0, 4.1, 3.8]))
    [trace] = plot.data
    assert list(trace.y) == ["better", "worse"]
    assert list(trace.x) == pytest.approx([-1.033, 0.967], abs=1e-3)
    assert list(trace.error_x.array) == pytest.approx([0.143, 0.143], abs=1e-3)
    low, high = plot.layout.xaxis.range
    assert low < -1.033 - 0.143
    assert 0.967 + 0.143 < high < 1.5
    assert difference_plot(gather(fixture_seeds("traditional", [5.0, 6.0, 7.0]))) is None
    assert difference_plot(gather(fixture_seeds("other", [5.0, 6.0, 7.0]))) is None


def test_below_three_seeds_a_difference_has_no_interval():
    [trace] = difference_plot(arms(other=[4.0, 4.2])).data
    assert list(trace.x) == pytest.approx([-0.95])
    assert math.isnan(trace.error_x.array[0])


def test_what_lies_far_above_the_rest_is_an_arrow_at_the_edge_with_its_number():
    near = {f"arm {i}": [5.0 + i / 5, 5.1 + i / 5, 4.9 + i / 5] for i in range(5)}
    plot = difference_plot(arms(**near, far=[50.0, 50.1, 49.9]))
    [trace] = plot.data
    assert list(trace.marker.symbol) == ["circle"] * 5 + ["triangle-right"]
    assert [text.strip() for text in trace.text] == [""] * 5 + ["+45.0"]
    assert trace.x[-1] < plot.layout.xaxis.range[1] < 2


def test_an_axis_of_errors_ends_with_the_curves_that_are_shown():
    plot = error_plot(gather([*crowd(), fixture_run("awful", errors=[99.0, 99.0])]))
    assert "awful" not in shown(plot)
    assert menus(plot)["linear"][0]["yaxis.range"][1] < 60
    plot = pareto_plot(gather([*crowd(), fixture_run("awful", errors=[99.0, 99.0])]))
    assert menus(plot)["linear"][0]["yaxis.range"][1] < 60


def test_of_a_crowd_the_curves_of_traditional_and_those_that_end_lowest_are_shown_at_first():
    short = {"cost": 5.0, "config": {"epochs": 5}}
    expected = {"traditional", *(f"arm {i:2}" for i in range(6, 11))}
    assert shown(error_plot(gather(crowd()))) == expected
    several = gather([*crowd(), *crowd(**short)])
    assert shown(error_plot(several)) == {f"{name} @ 10" for name in expected}
    pareto = pareto_plot(several)
    hidden = {trace.name for trace in pareto.data if trace.visible == "legendonly"}
    assert hidden == {f"arm {i:2}" for i in range(6)}


def test_a_line_runs_through_the_means_and_its_band_around_the_interval():
    comparison = gather(fixture_seeds("traditional", [5.0, 6.0, 7.0]))
    band, line = error_plot(comparison).data
    assert line.y == pytest.approx([50.0, 20.0, 6.0])
    assert line.x == pytest.approx([10 / 3, 20 / 3, 10.0])
    half = 2.484
    assert band.y == pytest.approx([50.0, 20.0, 6 + half, 6 - half, 20.0, 50.0], abs=1e-3)
    assert band.x == pytest.approx([*line.x, *reversed(line.x)])
    assert band.legendgroup == line.legendgroup  # one entry of the legend switches both
    assert (band.showlegend, line.showlegend) == (False, None)


def test_below_three_seeds_the_seeds_are_drawn_and_no_band():
    seeds, mean = error_plot(gather(fixture_seeds("traditional", [5.0, 6.0]))).data
    assert seeds.fill is None
    assert list(seeds.y) == [50.0, 20.0, 5.0, None, 50.0, 20.0, 6.0, None]
    assert list(mean.y) == [50.0, 20.0, 5.5]
    assert len(error_plot(gather([fixture_run()])).data) == 1


@pytest.mark.parametrize(("count", "traces"), [(3, 6), (4, 4)])
def test_bands_that_would_cover_each_other_are_left_out(count, traces):
    runs = [run for i in range(count) for run in fixture_seeds(f"arm {i}", [5.0, 6.0, 7.0])]
    assert len(error_plot(gather(runs)).data) == traces


def test_a_menu_draws_errors_along_cost_seconds_backward_passes_updates_and_candidates():
    plot = error_plot(gather([fixture_run()]))
    entries = {k: v for k, v in menus(plot).items() if k.startswith("along")}
    ends = [change["x"][0][-1] for change, _ in entries.values()]
    assert ends == [10.0, 20.0, 3200.0, 100.0, 6400.0]
    titles = [layout["xaxis.title.text"].split(",")[0] for _, layout in entries.values()]
    assert titles == [
        "cost",
        "wall seconds",
        "backward passes",
        "updates",
        "candidates: examples that came up",
    ]


@pytest.mark.parametrize(
    ("errors", "scales", "first"),
    [
        ([50.0, 5.0], ["log", "linear"], "log"),
        ([9.0, 5.0], ["linear", "log"], "linear"),
        ([9.0, 0.0], [], "linear"),
        ([math.nan], [], None),
    ],
)
def test_the_error_axis_is_logarithmic_where_that_helps(errors, scales, first):
    plot = error_plot(gather([fixture_run(errors=errors)]))
    assert [label for label in menus(plot) if not label.startswith("along")] == scales
    assert plot.layout.yaxis.type == first


def test_a_wide_band_does_not_flatten_the_curves_and_stays_above_zero():
    finals = (1.0, 9.0, 5.0)
    runs = [fixture_run(seed=seed, errors=[50.0, final]) for seed, final in enumerate(finals)]
    plot = error_plot(gather(runs))
    assert min(plot.data[0].y) > 0
    assert menus(plot)["linear"][0]["yaxis.range"] == pytest.approx((2.3, 52.7))


def test_unfinished_runs_are_lines_of_their_own():
    plot = error_plot(gather([fixture_run(), fixture_run("other", finished=False, upto=2)]))
    line = plot.data[-1]
    assert line.legendgroup == "other, seed 0, unfinished"
    assert len(line.y) == 2
    assert line.line.dash == "dot"


def test_every_length_of_a_strategy_is_a_point_of_cost_and_final_error():
    traditional, *_ = pareto_plot(gather(runs_of(3, 10))).data
    assert list(traditional.x) == [3.0, 10.0]
    assert traditional.y == pytest.approx([6.0, 6.0])
    assert list(traditional.customdata) == ["6.00 ± 2.48 %"] * 2
    assert pareto_plot(gather([fixture_run(finished=False)])) is None


def test_every_point_stands_at_its_cost_also_where_budgets_are_equal():
    config = {"budget": 10.0, "budget_unit": "cost"}
    costs = {"a": 9.9, "b": 10.0, "c": 10.0, "d": 10.1}
    plot = pareto_plot(gather([fixture_run(n, config=config, cost=c) for n, c in costs.items()]))
    assert [trace.x[0] for trace in plot.data[:-1]] == list(costs.values())
    assert len({trace.marker.symbol for trace in plot.data[:-1]}) == len(costs)


def test_the_front_is_drawn_through_what_nothing_beats_on_the_axis_that_is_chosen():
    runs = [
        fixture_run("traditional", errors=[50.0, 4.0], cost=10.0, seconds=10.0),
        fixture_run("good", errors=[50.0, 5.0], cost=4.0, seconds=12.0),
        fixture_run("beaten", errors=[50.0, 6.0], cost=5.0, seconds=5.0),
        fixture_run("cheap", errors=[50.0, 9.0], cost=2.0, seconds=2.0),
    ]
    plot = pareto_plot(gather(runs))
    drawn = plot.data[-1]
    assert list(zip(drawn.x, drawn.y, strict=True)) == [(2.0, 9.0), (4.0, 5.0), (10.0, 4.0)]
    change, _ = menus(plot)["along wall seconds"]
    places = list(zip(change["x"][-1], change["y"][-1], strict=True))
    assert places == [(2.0, 9.0), (5.0, 6.0), (10.0, 4.0)]


def test_what_diverged_is_not_on_the_front_and_hides_nothing_that_is():
    runs = [fixture_run(errors=[math.nan]), fixture_run("other", errors=[5.0])]
    assert list(pareto_plot(gather(runs)).data[-1].y) == [5.0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_the_front_is_what_comparing_every_two_places_leaves(places):
    expected = {
        one
        for one in places
        if not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in places)
    }
    found = front(pd.DataFrame(places, columns=["cost", "error"], dtype=float), "cost")
    assert list(found.itertuples(index=False, name=None)) == sorted(expected)


def test_phases_are_stacked_for_each_group():
    figure = phase_plot(gather(runs_of(10)))
    assert [trace.name for trace in figure.data][:3] == ["load", "score", "select"]
    assert list(figure.data[0].y) == ["traditional", "selective-backprop"]
    assert list(figure.data[0].x) == [0.5, 0.5]
    assert figure.layout.barmode == "stack"
    assert phase_plot(gather([fixture_run(finished=False)])) is None


def test_names_that_look_like_markup_are_shown_as_they_are():
    name = '<a href="x">b</a></script>&'
    for plot in plots_of([fixture_run(name), fixture_run(name, config={"epochs": 3}, cost=3.0)]):
        source = plot.to_html(include_plotlyjs=False)
        assert "<a href" not in source
        assert source.count("</script>") == 1
        assert "\\u0026lt;a href=" in source or "&lt;a href=" in source.replace("\\u003c", "<")


def test_a_tangle_of_lengths_starts_with_the_longest_that_rival_each_other():
    def first(runs):
        return shown(error_plot(gather(runs)))

    rivals = {"traditional @ 10", "selective-backprop @ 10"}
    assert len(first(runs_of(3, 6, 10))) == 6
    assert first(runs_of(2, 3, 6, 10)) == rivals
    brief = fixture_run("brief", config={"epochs": 3}, cost=3.0)
    found = shown(pareto_plot(gather([*runs_of(2, 3, 6, 10), brief])))
    assert found == {"traditional", "selective-backprop", "brief"}
    alone = fixture_run(config={"epochs": 30}, cost=30.0)
    assert first([*runs_of(3, 6, 10), alone]) == rivals
    assert len(first([fixture_run(config={"epochs": e}) for e in range(1, 9)])) == 8


def test_of_a_single_evaluation_there_is_a_dot():
    once, twice = (fixture_run("traditional", errors=errors) for errors in ([5.0], [6.0, 5.0]))
    assert [error_plot(gather([run])).data[-1].mode for run in (once, twice)] == [
        "markers",
        "lines",
    ]
