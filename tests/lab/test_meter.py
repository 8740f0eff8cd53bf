import resource
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop_lab import meter as metering
from selective_backprop_lab.meter import Meter, Price

CPU = torch.device("cpu")


@given(
    rows=st.integers(0, 1000),
    scored=st.integers(0, 1000),
    checked=st.integers(0, 1000),
    score=st.floats(0.0, 2.0),
    learn=st.floats(0.0, 6.0),
    prepared=st.floats(0.0, 10.0),
)
def test_what_was_prepared_and_a_scorer_of_its_own_are_charged_at_what_they_cost(
    rows, scored, checked, score, learn, prepared
):
    meter = Meter(100, CPU)
    assert (meter.prepared, meter.price) == (0.0, Price(score=1.0, learn=0.0))
    meter.updates, meter.trained = meter.updates + 1, meter.trained + rows
    meter.prepared, meter.price = prepared, Price(score, learn)
    expected = prepared + (scored * score + 3 * rows + learn * rows) / 300
    assert meter.cost(scored) == pytest.approx(expected)
    # a check is a forward of the model itself, whatever the scorer costs
    assert meter.cost(scored, checked) == pytest.approx(expected + checked / 300)


@pytest.mark.parametrize(("system", "bytes_"), [("linux", 3 * 1024), ("darwin", 3)])
def test_peak_memory_is_in_bytes_whatever_the_system_counts_in(monkeypatch, system, bytes_):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=3))
    meter = Meter(1, CPU)
    meter.start()
    meter.stop()
    assert meter.peak_memory == bytes_


def test_on_a_gpu_the_peak_is_the_highest_of_a_run_s_own_turns(monkeypatch):
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(metering.sb, "Stopwatch", lambda device=None, watch=sb.Stopwatch: watch())
    allocated = SimpleNamespace(peak=0)
    for name, stand_in in {
        "reset_peak_memory_stats": lambda device: setattr(allocated, "peak", 0),
        "max_memory_allocated": lambda device: allocated.peak,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    meter = Meter(1, gpu)
    for own in (30, 70, 50):
        meter.start()
        allocated.peak = max(allocated.peak, own)
        meter.stop()
        allocated.peak = max(allocated.peak, 99)  # another run's turn
    assert meter.peak_memory == 70
