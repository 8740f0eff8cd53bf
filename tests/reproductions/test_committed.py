"""Committed pages of the papers say what their records say."""

import pytest
from fixture_records import RECORDS

import selective_backprop as sb
from reproductions.jiang2019.scales import TUNED
from reproductions.papers import committed, figures_at, gather, section, tuned_rates

# Whose figures show images or classes of data sets, which may not be at hand.
NEED_DATA = {"fig-2", "fig-15", "diet-images", "diet-classes"}


@pytest.mark.parametrize("scale", ["small", "cifar10", "saturated"])
def test_a_page_of_the_papers_says_what_its_records_say(scale, one_thread):
    order = committed(RECORDS / "papers" / scale)
    page = (order.out / "index.md").read_text(encoding="utf-8")
    for figure in figures_at(order.scale):
        try:
            found = gather(figure, order, {})
            said = section(figure, found, figure.present(found))
        except sb.DataError:
            assert figure.name in NEED_DATA
            assert (order.out / f"{figure.name}.png").exists()
        else:
            assert said in page


def test_the_learning_rates_of_the_saturated_scale_are_the_best_of_its_tuning():
    found = tuned_rates(committed(RECORDS / "papers" / "saturated"))
    assert [data for data in found if TUNED.get(data, found[data]) != found[data]] == []
