import io
from dataclasses import replace

import pytest
from fixture_papers import fixture_scale, fixture_setting
from rich.console import Console

from reproductions.jiang2019.needs import needs_of
from reproductions.jiang2019.progress import Shown, spell
from reproductions.jiang2019.registry import find_items


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "unknown"), (0.0, "0 s"), (89.4, "89 s"), (91.0, "2 min"), (3599.0, "1 h 00 min")],
)
def test_durations_are_spelled_for_readers(seconds, words):
    assert spell(seconds) == words


def test_the_time_left_follows_the_pace_so_far():
    scale = fixture_scale(fixture_setting(evaluations=4))
    one, other = needs_of(find_items(["fig-1"]), scale, seeds=1, device="cpu")[:2]
    other = replace(other, plan=one.plan)  # of the same size
    seconds = [0.0]
    screen = Console(file=io.StringIO(), width=120)
    with Shown(screen, [one, other], now=lambda: seconds[0]) as shown:
        assert shown.left is None
        seconds[0] = 10.0
        shown(one, "error 9 %")
        assert shown.left == 70.0
        for _ in range(3):
            shown(one, "error 8 %")
        shown(one, None)
        assert "1 of 2: digits, fixture_lab:small_net, traditional, seed 0; 10 s left" in (
            screen.file.getvalue()
        )
