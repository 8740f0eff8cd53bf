"""When selection acts."""

from typing import Any

import pytest
from fixture_loaders import Numbered, flat, losses_by_number, numbers, select, selective
from torch.utils.data import DataLoader

import selective_backprop as sb


def noting(scored: list[list[int]]) -> Any:
    """Losses by number, and a note of which examples were scored."""
    return lambda *each: scored.append(each[1][1].tolist()) or losses_by_number(*each)


def test_a_warm_up_is_scored_just_once_to_see_that_it_can_be():
    scored: list[list[int]] = []
    loader = select(DataLoader(Numbered(24), 4), selective(warmup_epochs=2), losses=noting(scored))
    for _ in range(2):
        assert flat(numbers(loader)) == list(range(24))
    assert scored == [[0, 1, 2, 3]]
    assert loader.state_dict()["parts"]["history"]["filed"] == 0
    assert len(flat(numbers(loader))) == 12
    assert loader.stats.scored == 4 + 24
    assert loader.state_dict()["parts"]["history"]["filed"] == 24


def test_selection_acts_between_two_fractions_of_the_candidates():
    scored: list[list[int]] = []
    strategy = selective(start=0.3, end=0.7)
    loader = select(DataLoader(Numbered(20), 2), strategy, losses=noting(scored), epochs=4)
    batches = [numbers(loader) for _ in range(4)]
    # 40 candidate batches, of which number 12 to 27 are selected from, and the first one tried
    assert scored == [[2 * (number % 10), 2 * (number % 10) + 1] for number in [0, *range(12, 28)]]
    assert [len(epoch) for epoch in batches] == [10, 2 + 8 // 2, 8 // 2 + 2, 10]


@pytest.mark.parametrize("scored", [True, False])
def test_waiting_rows_go_first_where_an_unselective_phase_begins(scored):
    strategy = sb.Strategy(
        "until half time",
        sb.scorers.Forward() if scored else None,
        sb.selectors.Uniform(1 / 2),
        sb.Schedule(end=0.5),
    )
    loader = select(DataLoader(Numbered(22), 4), strategy, epochs=2)
    assert [len(batch) for batch in numbers(loader)] == [4, 4]
    assert loader.stats.waiting == 6  # 22 candidates, of which a window takes 8
    assert len(loader) == 7
    last = numbers(loader)
    assert flat(last) == [16, 17, 18, 19, 20, 21, *range(22)]
    assert [len(batch) for batch in last] == [4] * 7


def test_progress_that_the_user_measures_decides_when_selection_acts():
    done = 0.0
    loader = select(
        DataLoader(Numbered(16), 4), selective(start=0.25, end=0.75), progress=lambda: done
    )
    assert loader.progress == 0.0
    assert len(flat(numbers(loader))) == 16
    done = 0.5
    assert len(flat(numbers(loader))) == 8
    assert loader.progress == 0.5
    done = 0.75
    assert len(flat(numbers(loader))) == 16
    with pytest.raises(TypeError, match="progress"):
        len(loader)


@pytest.mark.parametrize("strategy", [selective(1 / 4), sb.random_backprop(1 / 4)])
@pytest.mark.parametrize("workers", [0, 1])
def test_progress_counts_candidates_and_not_batches_handed_out(strategy, workers):
    loader = DataLoader(Numbered(40), 4, num_workers=workers)
    selecting = select(loader, strategy, epochs=4, leftovers="drop")
    assert selecting.progress == 0.0
    seen = []
    for _ in range(4):
        for _ in selecting:
            seen.append(selecting.progress)
        seen.append(selecting.progress)
    steps = [epoch + part for epoch in range(4) for part in (0.4, 0.8, 1.0)]
    assert seen == [step / 4 for step in steps]
    assert select(DataLoader(Numbered(32), 4), selective()).progress is None
