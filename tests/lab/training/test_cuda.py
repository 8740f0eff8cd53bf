"""On a CUDA device, runs that take turns leave no trace in each other either."""

from dataclasses import replace

import pytest
import torch
from fixture_lab import few_digits, finish, fixture_plan

from selective_backprop_lab.training.run import TrainingRun


@pytest.mark.cuda
@pytest.mark.parametrize("arm", ["traditional", "selective-backprop"])
def test_a_run_leaves_the_device_s_random_stream_where_it_was(arm):
    before = torch.cuda.get_rng_state()
    finish(TrainingRun(replace(fixture_plan(arm), device="cuda"), few_digits()))
    assert torch.equal(torch.cuda.get_rng_state(), before)
