"""Measures by class, each against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest
from fixture_runs import fixture_point, fixture_run

from selective_backprop_lab.analysis.class_errors import (
    area_under_curve,
    balanced_error,
    error_as_it_comes,
    is_binary,
    is_skewed,
    log_loss,
    macro_recall,
    rare_recall,
)
from selective_backprop_lab.analysis.grouping import gather
from selective_backprop_lab.analysis.summary import to_markdown

SHARES = [0.5, 0.1, 0.2, 0.05, 0.15]
ERRORS = (2.0, 10.0, 4.0, 40.0, 20.0)


def skewed_run(errors=ERRORS, arm="traditional", seed=0, skew=1.5):
    run = fixture_run(arm, seed, config={"composition": {"skew": skew}} if skew else None)
    points = [fixture_point(0.5, class_errors=(90.0,) * 5), fixture_point(class_errors=errors)]
    end = {"status": "finished", "meters": {"class_shares": SHARES}}
    return replace(run, points=tuple(points), end=end)


def test_the_measures_are_those_of_the_last_evaluation():
    run = skewed_run()
    assert balanced_error(run) == pytest.approx(76 / 5)
    assert macro_recall(run) == pytest.approx(100 - 76 / 5)
    assert error_as_it_comes(run) == pytest.approx(1.0 + 1.0 + 0.8 + 2.0 + 3.0)
    assert rare_recall(run) == pytest.approx(100 - (40 + 10 + 20) / 3)


def test_a_class_without_test_examples_counts_for_nothing():
    run = skewed_run((math.nan, 10.0, 4.0, 40.0, 20.0))
    assert balanced_error(run) == pytest.approx(74 / 4)
    assert error_as_it_comes(run) == pytest.approx((1.0 + 0.8 + 2.0 + 3.0) / 0.5)


def test_a_record_of_before_has_no_measure_by_class():
    run = fixture_run()
    for measure in (balanced_error, macro_recall, error_as_it_comes, rare_recall):
        assert math.isnan(measure(run))


def test_the_table_shows_them_where_classes_are_skewed_and_nowhere_else():
    assert is_skewed(skewed_run())
    text = to_markdown(gather([skewed_run(), skewed_run(arm="auto")]))
    assert "| as it comes % | macro- recall % | rarest three % |" in text
    assert "| 7.80 | 84.80 | 76.67 |" in text
    assert "Classes are skewed" in text
    assert "skew 1.5" in text
    assert "macro" not in to_markdown(gather([skewed_run(skew=0)]))


def test_the_table_of_two_classes_shows_log_loss_and_the_area_under_the_curve():
    clicks = replace(
        fixture_run(),
        points=(
            fixture_point(0.5, test_loss=9.0, ranking=0.5),
            fixture_point(test_loss=0.0953, ranking=0.75),
        ),
    )
    assert is_binary(clicks)
    assert (log_loss(clicks), area_under_curve(clicks)) == (0.0953, 75.0)
    text = to_markdown(gather([clicks]))
    assert "| log-loss × 100 | area under curve % |" in text
    assert "| 9.53 | 75.00 |" in text
    assert "in nats" in text
    several = fixture_run()
    assert not is_binary(several)
    assert math.isnan(area_under_curve(several))
    assert "log-loss" not in to_markdown(gather([several]))
