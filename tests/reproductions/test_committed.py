"""Committed pages of the papers say what their records say."""

import pytest
import torch

import selective_backprop as sb
from benchmarks.case import ROOT
from reproductions.jiang2019.scales import TUNED
from reproductions.jiang2019.times import tuned
from reproductions.papers import FIGURES, committed, figures_at, gather, section

PAPERS = ROOT / "records" / "papers"
# Whose tables show images or classes of data sets, which may not be at hand.
NEED_DATA = {"fig-2", "diet-images", "diet-classes"}


@pytest.mark.parametrize("scale", ["small", "saturated", "redundant", "cifar10", "nets", "gpu"])
def test_a_page_of_the_papers_says_what_its_records_say(scale):
    torch.set_num_threads(1)  # which is part of what a record is known by
    order = committed(PAPERS / scale)
    page = (order.out / "index.md").read_text(encoding="utf-8")
    for figure in figures_at(order.scale):
        evidence = gather(figure, order, {})
        try:
            judged = order.judge(figure, evidence)
            pictured = f"]({figure.name}.png)" in page
            text = section(figure, evidence, figure.tables(evidence), judged, pictured)
        except sb.DataError:
            assert figure.name in NEED_DATA
            assert (order.out / f"{figure.name}.png").exists()
        else:
            assert text in page


def test_the_learning_rates_of_the_saturated_scale_are_the_best_of_its_tuning():
    evidence = gather(FIGURES["tuning"], committed(PAPERS / "saturated"), {})
    for panel in evidence.panels:
        found = tuned(panel)
        best = found.loc[found.groupby("key").error.idxmin()].set_index("key").rate
        assert best.to_dict() == TUNED[panel.setting.recipe.data]
        tried = found.groupby("key").rate
        assert (tried.min() < best).all()
        assert (best < tried.max()).all()
