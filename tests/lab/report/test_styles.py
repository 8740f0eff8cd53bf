import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
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


def test_more_arms_than_colours_are_drawn_all_the_same():
    assert len(look(*(f"arm{i}" for i in range(20)))) == 20


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


def test_a_run_that_changed_machines_is_left_out_of_the_seconds_per_phase():
    moved = fixture_run(seed=1, end={"machines": ["A", "B"]})
    found = phase_table(arms(fixture_comparison([fixture_run(), moved])).values())
    assert [*found["backward"]] == [4.0]


def lab(colour):
    """CIE L*a*b* of a colour, by its definition."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    rgb = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]] @ rgb
    x, y, z = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_no_phase_has_the_colour_of_a_strategy_and_neighbours_differ_in_grey_too():
    arms = [style.colour for style in look(*STRATEGIES, "own", "another").values()]
    for phase in PHASE_COLOURS.values():
        assert min(np.linalg.norm(lab(phase) - lab(arm)) for arm in arms) > 15
    lightness = [lab(colour)[0] for colour in PHASE_COLOURS.values()]
    assert min(abs(a - b) for a, b in pairwise(lightness)) > 10


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


def test_an_axis_of_equal_errors_has_a_height():
    for error in (0.0, 5.0):
        low, high = span([error, error]).linear
        assert 0 <= low <= error < high
