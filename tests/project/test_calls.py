"""No training step makes more calls within the package than the benchmark `calls` allows it."""

import pytest
from torch import nn

from benchmarks.cases.launches import ARMS, CALLS, counting
from selective_backprop._core.isolation import list_modules


@pytest.mark.parametrize("name", CALLS)
def test_a_training_step_makes_no_more_calls_than_it_may(name):
    assert ARMS.keys() == CALLS.keys()
    assert ARMS[name]() <= CALLS[name]


def test_only_calls_of_the_packages_functions_count():
    with counting() as counted:
        list_modules(nn.Linear(1, 1))
        list_modules(nn.Linear(1, 1))
        sorted([2, 1], key=lambda number: number)
    assert counted.calls == 2
