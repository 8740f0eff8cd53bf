from dataclasses import replace
from pathlib import Path

import pytest
from fixture_papers import fixture_scale, fixture_setting
from fixture_runs import fixture_run

from reproductions.jiang2019 import pace as pace_module
from reproductions.jiang2019.needs import needs_of
from reproductions.jiang2019.pace import Pace, elapsed_of
from reproductions.jiang2019.registry import find_items

SETTING = fixture_setting()
TRADITIONAL, SELECTIVE, STALE = needs_of(
    find_items(["fig-1"]), fixture_scale(SETTING), seeds=1, device="cpu"
)


def lasting(seconds):
    end = {"status": "finished", "ended": f"2020-01-01T00:00:{seconds:02d}+00:00"}
    return replace(fixture_run(), end=end)


@pytest.fixture
def recorded(monkeypatch):
    """Give every record a duration, by its file's name."""
    runs = {}
    monkeypatch.setattr(pace_module, "read_run", lambda path: runs[path.name])

    def record(need, seconds):
        runs[need.file(Path()).name] = lasting(seconds)
        return need

    return record


def test_a_record_says_how_long_its_run_took():
    assert elapsed_of(lasting(37)) == 37.0


def test_a_run_of_several_sittings_took_what_these_took_whatever_the_clock_said():
    run = lasting(37)
    assert elapsed_of(replace(run, end={**run.end, "elapsed": 12.5})) == 12.5
    back = replace(run, end={**run.end, "ended": "2019-01-01T00:00:00+00:00", "elapsed": 12.5})
    assert elapsed_of(back) == 12.5


def test_runs_of_the_same_net_and_data_are_taken_for_the_rest(recorded):
    pace = Pace([recorded(TRADITIONAL, 40)], Path())
    expected = 40 * SELECTIVE.work / TRADITIONAL.work
    assert pace.seconds(SELECTIVE) == pytest.approx(expected)
    assert 0 < expected < 40


def test_what_is_too_short_to_tell_and_what_is_of_another_kind_count_for_nothing(recorded):
    other = replace(TRADITIONAL, plan=replace(TRADITIONAL.plan, device="cuda"))
    pace = Pace([recorded(TRADITIONAL, 4), recorded(other, 40)], Path())
    assert pace.seconds(SELECTIVE) is None
    assert pace.total([SELECTIVE], jobs=1) is None


def test_several_at_a_time_take_as_long_as_the_longest_at_least(recorded):
    pace = Pace([recorded(TRADITIONAL, 40)], Path())
    one = pace.seconds(TRADITIONAL)
    assert one == pytest.approx(40)
    assert pace.total([TRADITIONAL, TRADITIONAL], jobs=2) == pytest.approx(40)
    assert pace.total([TRADITIONAL], jobs=2) == pytest.approx(40)
    assert pace.total([TRADITIONAL] * 3, jobs=2) == pytest.approx(60)
