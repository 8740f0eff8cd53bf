import io
import math
from dataclasses import replace

import pytest
from fixture_runs import fixture_comparison, fixture_point, fixture_run, fixture_seeds
from rich.console import Console

from selective_backprop_lab.analysis.findings import conclusion
from selective_backprop_lab.analysis.summary import comparison_table


def to_markdown(comparison):
    return comparison_table(comparison).to_markdown()


def shown(runs, width):
    console = Console(width=width, file=io.StringIO())
    console.print(comparison_table(fixture_comparison(runs)))
    return console.file.getvalue()


def two_arms():
    return [
        *fixture_seeds("selective-backprop", [5.0, 6.0, 7.0], cost=6.0, seconds=10.0),
        *fixture_seeds("traditional", [4.0, 5.0, 6.0]),
    ]


def cells(table):
    """The cells of each row but its name, by that name and by heading."""
    names = [column.name for column in table.set_columns]
    return {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in table.rows}


def test_seconds_of_two_machines_are_not_shown():
    here, there = fixture_seeds("traditional", [4.0]), fixture_seeds("other", [5.0])
    elsewhere = fixture_seeds("other", [5.0], hardware={"cpu": "Another"})
    for other, shown in ((there, "20.0"), (elsewhere, "–")):
        found = cells(comparison_table(fixture_comparison([*here, *other])))
        assert {row["wall s"] for row in found.values()} == {shown}


def both_lengths(longest=6.0):
    """Two arms at two lengths, of which the shorter is the better for traditional training."""
    return [
        run
        for cost, plain, other in ((10, longest, 4.0), (4, 5.0, 5.0))
        for arm, end in (("traditional", plain), ("other", other))
        for run in fixture_seeds(
            arm, [end, end + 0.2, end + 0.1], cost=cost, config={"budget": cost, "epochs": None}
        )
    ]


def test_each_arm_has_its_gain_over_the_best_plain_training_up_to_its_cost_and_a_verdict():
    table = comparison_table(fixture_comparison(both_lengths()))
    found = cells(table)
    assert table.columns[0] == "strategy @ passes"
    gained = ["gain points", "over plain training of", "verdict"]
    assert [found["other @ 10"][name] for name in gained] == ["−1.00", "4 passes", "gains"]
    assert [found["other @ 4"][name] for name in gained] == ["+0.00", "4 passes", "level"]
    assert [found["traditional @ 10"][name] for name in gained] == ["", "", ""]
    assert "Holm's correction for 2 verdicts" in " ".join(table.notes)


def test_a_column_that_only_repeats_the_length_of_its_rows_is_left_out():
    epochs = fixture_seeds("traditional", [5.0], cost=5.0) + fixture_seeds("auto", [5.0])
    longest = both_lengths(4.5)
    for runs, *shown in (
        (both_lengths(), False, True),
        (longest, False, False),
        (epochs, True, False),
    ):
        columns = cells(comparison_table(fixture_comparison(runs))).popitem()[1]
        assert [name in columns for name in ("cost passes", "over plain training of")] == shown


def test_a_table_says_which_difference_its_seeds_would_show():
    plain, auto = (fixture_seeds(arm, [5.0, 5.2, 5.7]) for arm in ("traditional", "auto"))
    near = fixture_seeds("near", [4.0, 5.0, 6.0])
    notes = " ".join(comparison_table(fixture_comparison([*plain, *auto, *near])).notes)
    assert "four of five such comparisons would find a difference of 0 to 3 points" in notes
    assert "4 seeds would show a halved error" in notes


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_table_fits_its_terminal(width):
    text = shown(two_arms(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "fixture-data" in text
    assert ("A wider terminal also shows" in text) == (width < 80)


def test_text_is_judged_by_bits_per_byte_and_nothing_says_error():
    runs = []
    for arm, bits in (("traditional", 2.5), ("auto", 2.0)):
        for seed in range(3):
            run = fixture_run(arm, seed, config={"data": "source-bytes"})
            end = {"status": "finished", "meters": {"train_error": 60.0}}
            point = fixture_point(test_loss=(bits + seed / 100) * math.log(2.0))
            runs.append(replace(run, points=(point,), end=end))
    comparison = fixture_comparison(runs)
    table = comparison_table(comparison)
    found = cells(table)["auto"]
    assert found["final bits per byte"] == "2.01 ± 0.02"
    assert not any("error" in text for text in [*found, *table.notes])
    text = conclusion(comparison).text
    assert "ends at 2.51 bits per byte after 10 epochs." in text
    assert "2.01 bits per byte after 10 epochs (−0.50 bits per byte)" in text


def test_below_three_seeds_a_table_has_no_interval_and_says_so():
    for seeds in (1, 2, 3):
        runs = fixture_seeds("traditional", [5.0, 6.0, 7.0][:seeds])
        text = to_markdown(fixture_comparison(runs))
        assert ("With fewer than 3 seeds there is no interval" in text) == (seeds < 3)
        assert ("6.00 ± 2.48" in text) == (seeds == 3)
