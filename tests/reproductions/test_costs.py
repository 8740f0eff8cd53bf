"""What runs are expected to cost is about what they cost, and the small scale keeps its budget."""

from dataclasses import replace

import pytest
from fixture_lab import carry_out, few_digits
from fixture_papers import fixture_setting
from fixture_runs import fixture_run

from reproductions import costs
from reproductions.costs import Pace, elapsed_of, total
from reproductions.jiang2019.scales import SCALES, ScaleName
from reproductions.papers import FIGURES, Needs
from reproductions.strategies import entry, everyone, shortened
from reproductions.training import data_of, time_left
from selective_backprop.lab.training.run_config import RunConfig

SETTING = fixture_setting(epochs=4, limit=256)
TRADITIONAL, SELECTIVE = (entry(key, SETTING).plan for key in ("traditional", "sb"))


@pytest.mark.parametrize("planned", everyone(SETTING)[:-1], ids=lambda planned: planned.key)
def test_what_a_run_is_expected_to_cost_is_about_what_it_costs(planned):
    # Of all but Kath18, whose gate decides from the losses when it begins.
    last = carry_out(planned.plan, few_digits()).points[-1]
    scored, trained = costs.passes(planned.plan)
    # Rows of an incomplete batch wait, and coins fall as they fall.
    assert last.scored / 256 == pytest.approx(scored, rel=0.15, abs=0.05)
    assert last.trained / 256 == pytest.approx(trained, rel=0.15)
    assert last.cost == pytest.approx(costs.cost(planned.plan), rel=0.15)


def test_the_shortened_schedule_costs_what_sb_does():
    short = shortened(SETTING).plan.length
    assert short.unit == "cost"
    assert short.value == pytest.approx(costs.cost(SELECTIVE), abs=0.01)


def test_seconds_grow_with_what_is_passed_and_are_unknown_for_unknown_nets():
    setting = SCALES[ScaleName.SMALL].main[0]
    traditional = costs.seconds(entry("traditional", setting).plan)
    selective = costs.seconds(entry("sb", setting).plan)
    assert 0.4 * traditional < selective < traditional
    assert costs.seconds(TRADITIONAL) is None


def test_the_small_scale_keeps_its_budget():
    def minutes(figures, jobs):
        needs = Needs(figures, SCALES[ScaleName.SMALL], seeds=3, device="cpu")
        return time_left(needs.of(figures), Pace(()), jobs) / 60

    assert minutes(FIGURES.values(), 1) < 145
    assert all(minutes([figure], 2) < 17 for figure in FIGURES.values())


def test_the_full_scale_has_a_run_for_everything():
    needs = Needs(FIGURES.values(), SCALES[ScaleName.FULL], seeds=1, device="cpu")
    found = needs.of(FIGURES.values())
    assert set(map(data_of, found)) == {"cifar10", "cifar100", "svhn-extra", "mnist"}
    assert all(costs.work(job) > 0 for job in found if isinstance(job, RunConfig))


def lasting(seconds, **end):
    ended = f"2020-01-01T00:00:{seconds:02d}+00:00"
    return replace(fixture_run(), end={"status": "finished", "ended": ended, **end})


def test_a_record_says_how_long_its_run_took_whatever_the_clock_said():
    assert elapsed_of(lasting(37)) == 37.0
    assert elapsed_of(lasting(37, elapsed=12.5)) == 12.5


def test_runs_of_the_same_net_and_data_are_taken_for_the_rest():
    pace = Pace([(TRADITIONAL, lasting(40))])
    assert pace.seconds(TRADITIONAL) == pytest.approx(40)
    expected = 40 * costs.work(SELECTIVE) / costs.work(TRADITIONAL)
    assert pace.seconds(SELECTIVE) == pytest.approx(expected)
    assert 0 < expected < 40


def test_what_is_too_short_to_tell_and_what_is_of_another_kind_count_for_nothing():
    other = replace(TRADITIONAL, device="cuda")
    pace = Pace([(TRADITIONAL, lasting(4)), (other, lasting(40))])
    assert pace.seconds(SELECTIVE) is None
    assert time_left([SELECTIVE], pace, 1) is None


def test_several_at_a_time_take_as_long_as_the_longest_at_least():
    assert total([40.0, 40.0], 2) == total([40.0], 2) == 40.0
    assert total([40.0] * 3, 2) == 60.0
    assert total([40.0, None], 2) is None
