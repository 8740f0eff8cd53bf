import pytest
from fixture_lab import carry_out, few_digits
from fixture_papers import fixture_setting

from reproductions.jiang2019 import costs, lineup
from reproductions.jiang2019.needs import needs_of
from reproductions.jiang2019.registry import ITEMS
from reproductions.jiang2019.scales import SCALES, ScaleName

SETTING = fixture_setting(epochs=4, limit=256)


@pytest.mark.parametrize("entry", lineup.everyone(SETTING), ids=lambda entry: entry.key)
def test_what_a_run_is_expected_to_cost_is_about_what_it_costs(entry):
    if entry.key == "kath18":
        return  # its gate decides from the losses when it begins
    last = carry_out(entry.plan, few_digits()).points[-1]
    scored, trained = costs.passes(entry.plan)
    # Rows of an incomplete batch wait, and coins fall as they fall.
    assert last.scored / 256 == pytest.approx(scored, rel=0.15, abs=0.05)
    assert last.trained / 256 == pytest.approx(trained, rel=0.15)
    assert last.cost == pytest.approx(costs.cost(entry.plan), rel=0.15)


def test_the_shortened_schedule_costs_what_sb_does():
    short = lineup.shortened(SETTING).plan.length
    assert short.unit == "cost"
    assert short.value == pytest.approx(costs.cost(lineup.selective(SETTING).plan), abs=0.01)


def test_seconds_grow_with_what_is_passed_and_are_unknown_for_unknown_nets():
    setting = SCALES[ScaleName.SMALL].main[0]
    traditional = costs.seconds(lineup.traditional(setting).plan)
    selective = costs.seconds(lineup.selective(setting).plan)
    assert traditional is not None
    assert selective is not None
    assert 0.4 * traditional < selective < traditional
    assert costs.seconds(lineup.traditional(SETTING).plan) is None


def test_the_small_scale_keeps_its_budget():
    scale = SCALES[ScaleName.SMALL]

    def minutes(items):
        found = [need.seconds for need in needs_of(items, scale, seeds=1, device="cpu")]
        return 3 * sum(found) / 60

    everything = list(ITEMS.values())
    assert minutes(everything) < 145
    # Two at a time.
    assert all(minutes([item]) / 2 < 17 for item in everything)


def test_the_full_scale_has_a_run_for_everything():
    scale = SCALES[ScaleName.FULL]
    found = needs_of(ITEMS.values(), scale, seeds=1, device="cpu")
    assert {need.data for need in found} == {"cifar10", "cifar100", "svhn-extra", "mnist"}
    assert all(need.work > 0 for need in found)
