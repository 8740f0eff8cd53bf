"""The figure of `bench`: a bar ends where the number beside it says."""

import pytest
from matplotlib.figure import Figure

from selective_backprop_lab.bench.figure import _draw_strategies
from selective_backprop_lab.bench.harness import Findings, StrategyCost
from selective_backprop_lab.bench.rounds import Median


def test_a_bar_ends_at_the_median_that_is_printed_though_its_phases_add_up_to_another():
    half, limit = Median(0.5, 0.4, 0.6, rounds=5), Median(0.45, 0.4, 0.5, rounds=5)
    strategies = {
        "over": StrategyCost(half, limit, half, {"score": 0.3, "backward": 0.3}),
        "under": StrategyCost(half, limit, half, {"backward": 0.2, "step": 0.2}),
    }
    axes = Figure().add_subplot()
    _draw_strategies(axes, Findings({}, 5, {}, half, {}, strategies, {}))
    ends = [
        max(bar[row].get_x() + bar[row].get_width() for bar in axes.containers) for row in (0, 1)
    ]
    assert ends == pytest.approx([0.5, 0.5])
    assert [text.get_text().strip() for text in axes.texts[:2]] == ["0.50", "0.50"]
