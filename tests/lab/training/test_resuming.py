"""A run that goes on from its state is the run that was never interrupted, bit for bit."""

from dataclasses import replace

import pytest
from fixture_lab import few_digits, fixture_plan, gone_on, same_runs, states_of

from selective_backprop_lab.strategies import STRATEGIES

DIFFERENT = (
    "traditional",
    "random-backprop",
    "selective-backprop",
    "predicted-sb-gp",
    "proxy-sb",
    "kath18-loss-gated",
    "kakurenbo",
    "easy-skip",
)
"""Arms that differ in what they must remember; those that prepare something are below."""


@pytest.mark.parametrize("arm", DIFFERENT)
def test_it_is_so_of_arms_of_every_kind(arm):
    plan, data = fixture_plan(arm), few_digits()
    whole, states = states_of(plan, data, every=3)
    assert same_runs(gone_on(plan, data, states[len(states) // 2]), whole)


def test_examples_that_wait_for_a_later_epoch_do_so_after_a_resumption():
    plan, data = fixture_plan("stale-sb-released", stale=3, epochs=6, evaluations=6), few_digits()
    whole, states = states_of(plan, data, every=5)
    assert all(same_runs(gone_on(plan, data, state), whole) for state in states)


@pytest.mark.parametrize("arm", ["diet-sb", "rho-loss"])
def test_what_was_prepared_is_not_prepared_again(monkeypatch, arm):
    plan, data = fixture_plan(arm, keep=1 / 2, young=1 / 3), few_digits()
    whole, states = states_of(plan, data, every=5)

    def refuse(task, settings):
        raise AssertionError("prepared again")

    monkeypatch.setitem(STRATEGIES, arm, replace(STRATEGIES[arm], prepare=refuse))
    resumed = gone_on(plan, data, states[-1])
    assert same_runs(resumed, whole)
    assert resumed.meter.prepared == whole.meter.prepared > 0.0
    assert resumed.meter.price == whole.meter.price
