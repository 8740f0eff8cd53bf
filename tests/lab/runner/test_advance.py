import pytest
from fixture_lab import fixture_plan
from fixture_runs import fixture_point

from selective_backprop.lab.runner.advance import Advance, seconds_left


def advance(arm="low-k", *, seeds=1, evaluations=4, **length):
    plans = [
        fixture_plan(arm, seed=seed, evaluations=evaluations, **length) for seed in range(seeds)
    ]
    return Advance(arm, plans), plans


def at(progress, **fields):
    return fixture_point(progress, **({"seconds": 4 * progress} | fields))


def test_an_arm_covers_all_its_seeds_those_included_that_are_recorded():
    arm, plans = advance(seeds=2)
    assert arm.waits
    arm.hear(plans[0], None, 0.0)
    arm.hear(plans[1], at(0.25), 3.0)
    assert (arm.done, arm.evaluations, arm.seeds) == (5, 8, "2 of 2")
    assert arm.left == 3 * 3.0


def test_what_an_interrupted_run_had_come_to_says_nothing_of_the_pace():
    arm, (plan,) = advance()
    arm.hear(plan, at(0.25), 0.001)
    arm.hear(plan, at(0.5), 0.001)
    assert arm.left is None
    arm.hear(plan, at(0.75), 3.0)
    assert arm.left == 3.0


def test_a_slow_start_does_not_decide_how_much_is_left():
    arm, (plan,) = advance()
    for step, seconds in enumerate((60.0, 2.0, 2.0), start=1):
        arm.hear(plan, at(step / 4), seconds)
    assert arm.left == 2.0


def test_an_arm_that_waits_is_taken_to_be_as_fast_as_the_others():
    one, (plan,) = advance()
    other, _ = advance("top-k")
    assert seconds_left([one, other]) is None
    one.hear(plan, at(0.25), 2.0)
    assert seconds_left([one, other]) == 2.0 * (3 + 4)
    for step in (2, 3, 4):
        one.hear(plan, at(step / 4), 2.0)
    assert one.whole
    assert seconds_left([one]) == one.left == 0.0


def test_saving_is_held_against_training_on_everything_for_as_long():
    arm, (plan,) = advance(epochs=3)
    assert arm.saved is arm.rate is None
    arm.hear(plan, at(0.5, cost=0.9, epoch=1.0), 2.0)  # pruned: fewer candidates came up
    assert arm.saved == pytest.approx(0.4)
    arm.hear(plan, at(1.0, cost=3.3), 2.0)
    assert arm.saved == pytest.approx(-0.1)


def test_at_a_given_cost_saving_is_held_against_the_candidates_that_came_up():
    arm, (plan,) = advance(cost=3.0)
    arm.hear(plan, at(0.5, cost=1.5, epoch=2.0), 2.0)
    assert arm.saved == pytest.approx(0.25)


def test_the_rate_is_that_of_the_run_so_far():
    arm, (plan,) = advance()
    arm.hear(plan, at(0.5, candidates=300, trained=120, rate=0.1), 2.0)
    assert arm.rate == 0.4
    arm.hear(plan, at(0.5, candidates=0, trained=0), 2.0)
    assert arm.rate is None
