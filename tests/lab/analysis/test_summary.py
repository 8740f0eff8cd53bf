import io
import math
from dataclasses import replace

import pytest
from fixture_runs import fixture_run, fixture_seeds
from rich.console import Console

import selective_backprop as sb
from selective_backprop.lab.analysis.summary import comparison_table, summarise, to_markdown


def shown(runs, width):
    console = Console(width=width, file=io.StringIO())
    console.print(comparison_table(summarise(runs)))
    return console.file.getvalue()


def two_arms():
    return [
        *fixture_seeds("selective-backprop", [5.0, 6.0, 7.0], cost=6.0, seconds=10.0),
        *fixture_seeds("traditional", [4.0, 5.0, 6.0]),
    ]


def test_a_row_holds_means_over_finished_runs():
    first, second = summarise([*two_arms(), fixture_run(seed=9, finished=False)]).rows
    assert (first.group.label, second.group.label) == ("traditional", "selective-backprop")
    assert first.error.mean == 5.0
    assert first.error.seeds == 3
    assert first.difference is None
    assert second.difference.mean == pytest.approx(1.0)
    assert second.difference.half_width == pytest.approx(0.0)
    assert [second.means[axis] for axis in ("cost", "seconds", "cpu_seconds")] == [6.0, 10.0, 18.0]
    assert [second.means[axis] for axis in ("scored", "trained", "updates")] == [6400, 3200, 100]


def test_speed_ups_are_measured_along_the_axis_asked_for():
    by_time = summarise(two_arms()).rows[1].speedups[2]
    by_cost = summarise(two_arms(), axis="cost").rows[1].speedups[2]
    assert by_time.ratio == pytest.approx(2.0)
    assert by_cost.ratio == pytest.approx(10 / 6)


def test_differences_are_to_the_same_length_and_targets_to_the_longest():
    runs = [
        *fixture_seeds("traditional", [5.0, 5.0], cost=10.0),
        *fixture_seeds("traditional", [9.0, 9.0], cost=4.0, config={"epochs": 4}),
        *fixture_seeds("other", [8.0, 8.0], cost=4.0, config={"epochs": 4}),
    ]
    other = summarise(runs).rows[2]
    assert other.group.label == "other @ 4"
    assert other.difference.mean == pytest.approx(-1.0)
    assert other.speedups[0].target == pytest.approx(5.5)


def test_without_traditional_there_are_no_speed_ups_and_a_word_says_why():
    summary = summarise(fixture_seeds("other", [5.0]))
    assert summary.rows[0].speedups == ()
    text = to_markdown(summary)
    assert text.count("| – | – | – |") == 1
    assert "no finished traditional run" in text


def test_what_preparing_cost_is_noted_below_the_table_in_a_terminal_and_in_markdown():
    spent = {"status": "finished", "meters": {"prepared_cost": 2.5}}
    runs = [*two_arms(), replace(fixture_run("el2n"), end=spent)]
    note = "el2n: 2.5 of its cost epochs were spent on preparing, before training."
    assert note in " ".join(shown(runs, 200).split())
    assert f"\n- {note}\n" in to_markdown(summarise(runs))


def test_an_arm_without_finished_runs_has_a_row_of_dashes():
    summary = summarise([fixture_run(), fixture_run("other", finished=False, upto=2)])
    row = summary.rows[1]
    assert math.isnan(row.means["cost"])
    line = next(line for line in to_markdown(summary).splitlines() if line.startswith("| other"))
    assert line == "| other (1 unfinished) |" + " – |" * 10
    assert "other, seed 0, is unfinished, at 50% of its length" in to_markdown(summary)


def test_runs_that_cannot_be_compared_are_refused():
    with pytest.raises(sb.RecordError):
        summarise([])


def test_markdown_holds_headline_table_and_notes():
    text = to_markdown(summarise(two_arms()))
    assert text.splitlines()[0].startswith("**fixture-data · fixture-net · 10 epochs")
    assert "| arm | final error % | scored | trained | updates | cost epochs |" in text
    assert "| selective-backprop | 6.00 ± 2.48 | 6.40k | 3.20k | 100 | 6.00 | 10.0 | 18.0 |" in text
    assert "| 2.00× | 2.00× (2 of 3) | never (1 of 3) |" in text
    assert "1.1 times the final error of traditional (5.00 %); never" in text


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_table_fits_its_terminal(width):
    text = shown(two_arms(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "fixture-data" in text
    assert ("A wider terminal shows also" in text) == (width < 95)


def test_a_narrow_terminal_loses_the_least_important_columns_first():
    left_out = [
        shown(two_arms(), width).splitlines()[-1].partition("shows also: ")[2].strip()
        for width in range(110, 60, -3)
    ]
    assert list(dict.fromkeys(left_out)) == [
        "",
        "CPU s.",
        "updates, CPU s.",
        "updates, CPU s, to 1.2×.",
        "updates, cost epochs, CPU s, to 1.2×.",
    ]
    assert "selective-backprop 6.00 ± 2.48" in shown(two_arms(), 79)


def test_without_a_width_no_column_is_left_out():
    table = comparison_table(summarise(two_arms()))
    assert len(table.columns) == 11
