import resource
import sys
from types import SimpleNamespace

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab import meter as metering
from selective_backprop_lab.meter import Meter

CPU = torch.device("cpu")


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
