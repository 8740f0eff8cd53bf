"""A run that goes on from its state is the run that was never interrupted, bit for bit."""

import io

import pytest
import torch
from fixture_lab import few_digits, fixture_plan, same_runs

from selective_backprop.lab.arms import ARMS
from selective_backprop.lab.runs import TrainingRun


def states_of(plan, data, every=1):
    """Carry out a run, and return it with its states after every so many updates, as files."""
    run, states, updates = TrainingRun(plan, data), [], iter(range(10_000))

    def pause():
        if next(updates) % every == 0:
            file = io.BytesIO()
            torch.save(run.state_dict(), file)
            states.append(file.getvalue())
        return False

    while not run.finished:
        run.advance(pause)
        run.look()
    return run, states


def gone_on(plan, data, state):
    run = TrainingRun(plan, data)
    run.load_state_dict(torch.load(io.BytesIO(state), weights_only=True))
    while not run.finished:
        run.advance()
        run.look()
    return run


@pytest.mark.parametrize("arm", ARMS)
def test_it_is_whichever_update_of_whichever_arm_it_was_interrupted_after(arm):
    plan, data = fixture_plan(arm, keep=1 / 2, young=1 / 3), few_digits()
    whole, states = states_of(plan, data, every=5)
    for state in states:
        assert same_runs(gone_on(plan, data, state), whole)
