"""The paper's headline, from the records alone."""

from fixture_papers import Screen, panel_of
from fixture_runs import fixture_run

from reproductions.headline import _beyond_plain, headline


def test_the_headline_says_four_things_and_draws_three(tmp_path):
    screen = Screen()
    headline(screen, tmp_path / "out")
    paper, found, fails, shortened, where = screen.text.splitlines()
    assert "1.2–1.5x faster" in paper
    assert "on MNIST and" in found
    assert "above Traditional" in fails
    assert "SB against it" in shortened
    assert where.endswith("index.md")
    drawn = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"fig-7.png", "table-1.md", "learned.png", "index.md"} <= drawn


def test_the_best_plain_training_is_the_one_that_reaches_a_target_first():
    errors = {"traditional": (40.0, 20.0, 10.0), "shortened": (10.0, 10.0, 10.0)}
    errors["sb"] = (40.0, 10.0, 10.0)
    runs = {key: [fixture_run(key, seed, each) for seed in (0, 1)] for key, each in errors.items()}
    panel = panel_of(**runs)
    slower = _beyond_plain(panel)
    assert [*slower.index] == [0, 1]
    assert (slower < 0).all()  # than the shortened one; it is sooner than the whole one
    alone = panel.only(arm for arm in panel.arms if arm.key != "shortened")
    assert (_beyond_plain(alone) > 0).all()
