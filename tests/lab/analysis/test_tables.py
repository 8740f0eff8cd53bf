import io
import math

import pytest
from rich.console import Console

from selective_backprop_lab.analysis.estimates import Estimate
from selective_backprop_lab.analysis.tables import (
    Column,
    Table,
    count,
    percent,
    piped,
    with_interval,
)

TABLE = Table(
    columns=("name", Column("final\nerror"), Column("verdict", left=True)),
    rows=[("a|b<c\\", "1.00 (2 of 3)", "yes"), ("long name", "12.00", "no")],
    title="A <title>",
    notes=["a | note"],
    ruled=[1],
)


def test_markdown_has_the_title_the_notes_and_nothing_that_would_break_it():
    assert TABLE.to_markdown().splitlines() == [
        "**A &lt;title>**",
        "",
        "| name | final error | verdict |",
        "| :-- | --: | :-- |",
        "| a\\|b&lt;c\\\\ | 1.00 (2 of 3) | yes |",
        "| long name | 12.00 | no |",
        "",
        "- a \\| note",
    ]
    assert Table(columns=("a",), rows=[]).to_markdown() == "| a |\n| :-- |\n"


def test_a_name_is_no_picture_in_markdown_which_would_be_loaded_from_elsewhere():
    assert piped(["![x](http://a.b/c.png)"]) == r"| !\[x](http://a.b/c.png) |"


def test_a_terminal_shows_it_all_and_takes_no_cell_for_markup():
    console = Console(width=60, file=io.StringIO())
    console.print(Table(columns=("[b]a",), rows=[("[i]b (c)",)], title="[u]t", notes=("[s]n",)))
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert [line for line in lines if line and "─" not in line] == [
        "[u]t",
        "[b]a",
        "[i]b",
        "(c)",
        "[s]n",
    ]


NAMES = ("traditional+smoothing-0.3 @ 24", "mine.rules:keep_hard_ones", "auto @ 6")


@pytest.mark.parametrize("width", [30, 40])
def test_a_name_is_folded_only_between_its_parts_and_only_where_it_must_be(width):
    console = Console(width=width, file=io.StringIO())
    console.print(Table(columns=("name", "error"), rows=[(name, "") for name in NAMES]))
    found = [line.strip() for line in console.file.getvalue().splitlines() if line.strip()]
    parts = ("traditional", "+smoothing-0.3 @ 24", "mine.rules:", "keep_hard_ones", "auto @ 6")
    assert found[2:] == [*(NAMES if width == 40 else parts)]


def test_counts_are_shown_to_three_digits():
    numbers = [0.0, 999.4, 999.6, 1e3, 9994.0, 12345.0, 99_960.0, 999_600.0, 4.56e6, 7.8e9]
    texts = "0 999 1.00k 1.00k 9.99k 12.3k 100k 1.00M 4.56M 7.80G –"
    assert " ".join(map(count, [*numbers, math.nan])) == texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate(12.345, 0.456, 3), "12.35 ± 0.46"),
        (Estimate(12.345, 0.004, 3), "12.345 ± 0.004"),
        (Estimate(12.3, math.nan, 1), "12.30"),
        (Estimate(math.nan, math.nan, 0), "–"),
        (Estimate(math.nan, math.nan, 2), "–"),
    ],
)
def test_a_mean_is_shown_with_its_interval(value, text):
    assert with_interval(value) in {text, text.replace("12.35", "12.34")}


def test_a_difference_is_shown_with_its_sign():
    assert with_interval(Estimate(0.5, 0.1, 3), signed=True) == "+0.50 ± 0.10"
    assert with_interval(Estimate(-0.5, 0.1, 3), signed=True) == "−0.50 ± 0.10"


@pytest.mark.parametrize(
    ("share", "said"), [(1 / 3, "33 %"), (0.65, "65 %"), (1 / 8, "12.5 %"), (0.035, "3.5 %")]
)
def test_a_share_is_in_whole_per_cent_but_for_halves(share, said):
    assert percent(share) == said
