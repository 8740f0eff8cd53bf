"""A ledger on a device is read as one on the CPU."""

import math

import numpy as np
import pytest
import torch

import selective_backprop as sb
from selective_backprop._memory.pending_updates import PendingUpdates


@pytest.mark.cuda
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("first", [False, True])
def test_a_ledger_on_a_device_is_read_as_one_on_the_cpu(depth, first):
    on_cpu, on_device = (sb.scorers.Ledger(9, depth, first=first) for _ in range(2))
    stream = torch.Generator().manual_seed(0)
    for number in range(150):  # more batches than are counted together
        rows = torch.randperm(9, generator=stream)[:4]
        losses = torch.rand(4, generator=stream).where(torch.arange(4) > 0, math.nan)
        on_cpu.hand_out(rows)
        on_cpu.record(rows, losses, number)
        there = rows.cuda()
        on_device.hand_out(there)
        on_device.record(there, losses.nan_to_num(math.inf).cuda(), number)  # counts as unknown
        if number % 40 == 0:
            assert on_device.selected.tolist() == on_cpu.selected.tolist()
            assert on_device.visits() == on_cpu.visits()
    for one, other in zip(on_device.recorded.observe(), on_cpu.recorded.observe(), strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    torch.testing.assert_close(on_device.recorded.first(), on_cpu.recorded.first(), equal_nan=True)
    found, expected = (each.state_dict()["selected"].cpu() for each in (on_device, on_cpu))
    assert found.tolist() == expected.tolist()
    again = sb.scorers.Ledger(9, depth, first=first)
    again.load_state_dict(on_device.state_dict())
    assert not np.isinf(again.recorded.on_host().scores).any()


@pytest.mark.cuda
def test_scores_on_the_host_are_kept_with_indices_that_come_from_the_device():
    indices, scores = torch.tensor([3, 1]), torch.tensor([0.5, 2.0])
    expected, found = PendingUpdates(4, depth=2), PendingUpdates(4, depth=2)
    for pending, rows in ((expected, indices), (found, indices.cuda())):
        pending.hand_out(rows[:1].clone())
        pending.record(rows, scores, 7)
    assert found.rows.cpu().equal(expected.rows)
