import pytest
from matplotlib.figure import Figure

from selective_backprop_lab.bench.show import _draw_strategies


def test_a_bar_ends_at_the_median_that_is_printed_though_its_phases_add_up_to_another():
    ratios = {"relative": {"median": 0.5}, "limit": {"median": 0.45}}
    strategies = {
        "over": ratios | {"phases": {"score": 0.3, "backward": 0.3}},
        "under": ratios | {"phases": {"backward": 0.2, "step": 0.2}},
    }
    axes = Figure().add_subplot()
    _draw_strategies(axes, {"strategies": strategies})
    ends = [
        max(bar[row].get_x() + bar[row].get_width() for bar in axes.containers) for row in (0, 1)
    ]
    assert ends == pytest.approx([0.5, 0.5])
    assert [text.get_text().strip() for text in axes.texts[:2]] == ["0.50", "0.50"]
