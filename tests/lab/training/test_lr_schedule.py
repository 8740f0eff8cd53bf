"""What the learning rate follows: each rule's rates against those worked out by hand."""

import math
import re
from dataclasses import replace

import pytest
from fixture_lab import MeteredClock, carry_out, few_digits, fixture_plan, name_watched, untimed
from torch.optim.optimizer import register_optimizer_step_pre_hook

from selective_backprop_lab.budget import ScheduleBasis, schedule_note
from selective_backprop_lab.recipe import Rates

THIRD = ("random-scored", "random-backprop")


@pytest.fixture
def learning_rates():
    """The learning rate of each step that an optimiser takes."""
    taken = []
    handle = register_optimizer_step_pre_hook(
        lambda optimizer, *_: taken.append(optimizer.param_groups[0]["lr"])
    )
    yield taken
    handle.remove()


def paced(arm, follows, **length):
    """A plan whose learning rate falls along half a cosine, so that it tells how far it is."""
    recipe = {"rates": Rates.COSINE, "learning_rate": 0.1}
    plan = fixture_plan(arm, rate=1 / 3, recipe=recipe, evaluations=2, **length)
    return replace(plan, lr_follows=follows)


def along_the_cosine(shares):
    return pytest.approx([0.05 * (1 + math.cos(math.pi * share)) for share in shares], abs=1e-12)


# Windows of 192: with what the epochs before left over, each epoch's third batch fills one.
@pytest.mark.parametrize("arm", THIRD)
@pytest.mark.parametrize(
    ("follows", "shares"),
    [
        (ScheduleBasis.RUN, [3 / 12, 7 / 12, 11 / 12]),
        (ScheduleBasis.CANDIDATES, [192 / 600, 392 / 600, 592 / 600]),
    ],
)
def test_three_epochs_of_an_arm_that_keeps_a_third(learning_rates, arm, follows, shares):
    carry_out(paced(arm, follows, epochs=3), few_digits(200))
    assert learning_rates == along_the_cosine(shares)


@pytest.mark.parametrize(
    ("arm", "shares"),
    [
        # A second for each forward pass: the update's own lies ahead, the scoring before it not.
        ("traditional", [n / 12 for n in range(12)]),
        ("random-scored", [3 / 12, 7 / 12, 11 / 12]),
    ],
)
def test_twelve_seconds(monkeypatch, learning_rates, arm, shares):
    clock = MeteredClock(monkeypatch)
    model = name_watched(monkeypatch, clock.tick)
    carry_out(paced(arm, ScheduleBasis.RUN, seconds=12.0, model=model))
    assert learning_rates == along_the_cosine(shares)


@pytest.mark.parametrize("epochs", [2, 8])
def test_a_run_that_ends_by_the_clock_has_the_schedule_of_the_recipe_s_epochs(
    monkeypatch, learning_rates, epochs
):
    clock = MeteredClock(monkeypatch)
    model = name_watched(monkeypatch, clock.tick)
    timed = paced("traditional", ScheduleBasis.CANDIDATES, seconds=6.0, model=model)
    carry_out(replace(timed, recipe=replace(timed.recipe, epochs=epochs)))
    shares = [batch / (4 * epochs) for batch in range(1, 7)]  # of four an epoch, one a second
    assert learning_rates == along_the_cosine(shares)


def test_selection_follows_the_run_whatever_the_learning_rate_does():
    counts = set()
    for follows in ScheduleBasis:
        points = untimed(carry_out(paced("selective-backprop", follows, epochs=3)).points)
        counts.add(tuple((p["progress"], p["scored"], p["trained"]) for p in points))
    assert len(counts) == 1


def test_a_record_says_what_the_learning_rate_followed():
    def said(follows, **length):
        return paced("traditional", follows, **length).description()["schedules_follow"]

    for unit, usual in {
        "epochs": "candidates seen",
        "cost": "cost spent",
        "seconds": "seconds spent",
    }.items():
        assert said(ScheduleBasis.RUN, **{unit: 3.0}) == usual
        assert schedule_note(usual) is None
        words = said(ScheduleBasis.CANDIDATES, **{unit: 3.0})
        assert words.startswith("share of traditional candidates")
        assert words in schedule_note(words)
    assert re.search(r"candidates of \d+ epochs", words)
