"""No batch takes more calls, host waits or kernels than the benchmarks `launches` allow it."""

import sys

import pytest
from torch import nn

from benchmarks.cases.launches import CALLS, LAUNCHES, counting
from selective_backprop._core.isolation import list_modules


@pytest.mark.parametrize("name", CALLS)
def test_a_training_step_makes_no_more_calls_than_it_may(name):
    count, most = CALLS[name]
    assert count() <= most


def test_only_calls_of_the_packages_functions_count():
    with counting() as counted:
        list_modules(nn.Linear(1, 1))
        list_modules(nn.Linear(1, 1))
        sorted([2, 1], key=lambda number: number)
    assert counted.calls == 2


@pytest.mark.cuda
@pytest.mark.skipif("made_up_cuda" not in sys.modules, reason="a real CUDA device counts nothing")
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_steady_batch_takes_no_more_host_waits_and_kernels_than_it_may(name):
    count, most_waits, most_kernels = LAUNCHES[name]
    waits, kernels = count()
    assert waits <= most_waits
    assert most_kernels is None or kernels <= most_kernels
