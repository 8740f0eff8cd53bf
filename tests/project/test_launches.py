"""No batch takes more host waits or kernels than the benchmark `launches` allows it."""

import sys

import pytest

from benchmarks.cases.launches import LIMITS

pytestmark = pytest.mark.cuda


@pytest.mark.skipif("made_up_cuda" not in sys.modules, reason="a real CUDA device counts nothing")
@pytest.mark.parametrize("name", LIMITS)
def test_a_steady_batch_takes_no_more_host_waits_and_kernels_than_it_may(name):
    from benchmarks.launches import ARMS

    assert ARMS.keys() == LIMITS.keys()
    found = ARMS[name]()
    waits, kernels = LIMITS[name]
    assert found.waits <= waits
    assert kernels is None or found.kernels <= kernels
