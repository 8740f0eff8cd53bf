import math
from dataclasses import replace

from fixture_runs import fixture_comparison, fixture_point, fixture_run

from selective_backprop_lab.analysis.comparison import arms
from selective_backprop_lab.report.styles import (
    PHASE_COLOURS,
    PHASES,
    ceiling,
    phase_table,
    span,
    styles,
)
from selective_backprop_lab.strategies import STRATEGIES


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
    assert set(PHASES) == set(PHASE_COLOURS)


def test_an_axis_ends_below_what_lies_far_above_the_rest():
    assert ceiling([12.0, 12.5, 13.0, 14.0, 53.0]) == 14.0
    assert ceiling([12.0, 12.5, 13.0, 14.0, math.nan]) == 14.0
    assert ceiling([5.0, 5.1, 9.0]) == 9.0
    assert ceiling([5.0, 5.0, 5.0, 5.0, 9.0]) == 9.0
    assert math.isnan(ceiling([]))


def test_an_axis_shows_means_alone_unless_intervals_are_asked_for():
    assert span([9.0, 5.0, math.nan]).linear == (4.76, 9.24)
    shown = span([9.0, 5.0], [1.0, 12.0])
    assert (shown.low, shown.high) == (2.5, 12.0)
    assert span([math.nan]) is None


def test_an_axis_is_logarithmic_by_the_means_where_it_can_be():
    assert span([50.0, 5.0]).wide
    assert not span([9.0, 5.0], [0.1, 100.0]).wide
    assert not span([9.0, 0.0]).wide
