from reproductions.table import Table, percent

TABLE = Table("a | b", ("strategy", "%"), (("SB", "1.0"), ("Stale-SB <3>", "12")))


def test_columns_are_as_wide_as_their_widest_cell():
    assert TABLE.as_text().splitlines() == [
        "a | b",
        "",
        "strategy        %",
        "-----------------",
        "SB            1.0",
        "Stale-SB <3>   12",
    ]


def test_markdown_shows_what_would_be_markup():
    assert TABLE.as_markdown().splitlines() == [
        "**a \\| b**",
        "",
        "| strategy | % |",
        "| :-- | --: |",
        "| SB | 1.0 |",
        "| Stale-SB &lt;3> | 12 |",
    ]


def test_shares_are_rounded_to_whole_per_cent():
    assert percent(1 / 3) == "33 %"
