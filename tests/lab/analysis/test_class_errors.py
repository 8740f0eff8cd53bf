"""Measures by class, each against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest
from fixture_runs import fixture_comparison, fixture_point, fixture_run

from selective_backprop_lab.analysis.queries import (
    area_under_curve,
    balanced_error,
    error_as_it_comes,
    is_binary,
    macro_recall,
    rare_recall,
)
from selective_backprop_lab.analysis.summary import comparison_table
from selective_backprop_lab.records.frame import frame_of

SHARES = [0.5, 0.1, 0.2, 0.05, 0.15]
ERRORS = (2.0, 10.0, 4.0, 40.0, 20.0)
MEASURES = (balanced_error, macro_recall, error_as_it_comes, rare_recall)


def skewed_run(errors=ERRORS, arm="traditional", skew=1.5):
    run = fixture_run(arm, config={"composition": {"skew": skew}} if skew else None)
    points = [fixture_point(0.5, class_errors=(90.0,) * 5), fixture_point(class_errors=errors)]
    end = {"status": "finished", "meters": {"class_shares": SHARES}}
    return replace(run, points=tuple(points), end=end)


def measured(run):
    return [measure(frame_of([run])).item() for measure in MEASURES]


def table_of(*runs):
    return comparison_table(fixture_comparison(runs)).to_markdown()


def test_the_measures_are_those_of_the_last_evaluation():
    expected = [76 / 5, 100 - 76 / 5, 1.0 + 1.0 + 0.8 + 2.0 + 3.0, 100 - (40 + 10 + 20) / 3]
    assert measured(skewed_run()) == pytest.approx(expected)


def test_a_class_without_test_examples_counts_for_nothing():
    balanced, _, as_it_comes, _ = measured(skewed_run((math.nan, 10.0, 4.0, 40.0, 20.0)))
    assert balanced == pytest.approx(74 / 4)
    assert as_it_comes == pytest.approx((1.0 + 0.8 + 2.0 + 3.0) / 0.5)


def test_a_record_of_before_has_no_measure_by_class():
    assert all(map(math.isnan, measured(fixture_run())))


def test_the_table_shows_them_where_classes_are_skewed_and_nowhere_else():
    text = table_of(skewed_run(), skewed_run(arm="auto"))
    assert "| as it comes % | macro- recall % | rarest three % |" in text
    assert "| 7.80 | 84.80 | 76.67 |" in text
    assert "Classes are skewed" in text
    assert "skewed classes (1.5)" in text
    assert "macro" not in table_of(skewed_run(skew=0))


def test_the_table_of_two_classes_shows_log_loss_and_the_area_under_the_curve():
    points = (
        fixture_point(0.5, test_loss=9.0, ranking=0.5),
        fixture_point(test_loss=0.0953, ranking=0.75),
    )
    clicks = replace(fixture_run(), points=points)
    assert area_under_curve(frame_of([clicks])).item() == 75.0
    text = table_of(clicks)
    assert "| log-loss × 100 | area under curve % |" in text
    assert "| 9.53 | 75.00 |" in text
    assert "in nats" in text
    assert not is_binary(frame_of([fixture_run()]))
    assert "log-loss" not in table_of(fixture_run())
