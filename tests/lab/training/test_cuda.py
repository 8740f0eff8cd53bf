"""On a CUDA device, every strategy of the lab trains, and leaves no trace in other runs."""

from dataclasses import replace

import pytest
import torch
from fixture_lab import few_digits, finish, fixture_plan

from selective_backprop_lab.strategies import STRATEGIES
from selective_backprop_lab.training.run import TrainingRun

ARMS = [arm for arm in STRATEGIES if arm != "oracle"]  # it refuses data without wrong labels


@pytest.mark.cuda
@pytest.mark.parametrize("arm", ["traditional", "selective-backprop"])
def test_a_run_leaves_the_device_s_random_stream_where_it_was(arm):
    before = torch.cuda.get_rng_state()
    finish(TrainingRun(replace(fixture_plan(arm), device="cuda"), few_digits()))
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.cuda
@pytest.mark.parametrize("arm", ARMS)
def test_every_strategy_trains_to_its_end(arm):
    plan = fixture_plan(arm, stale=2, keep=1 / 2, models=2, young=1 / 3)
    run = finish(TrainingRun(replace(plan, device="cuda"), few_digits()))
    assert run.points[-1].trained > 0
    assert run.points[-1].test_loss < 3.0
