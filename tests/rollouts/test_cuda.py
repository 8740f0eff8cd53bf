"""Rows of gradient zero on a CUDA device."""

import pytest
import torch

import selective_backprop as sb

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("values_on", ["cpu", "cuda"])
def test_rows_of_a_loaded_state_go_to_the_device_of_the_next_batch(values_on):
    before, backfill = sb.NonzeroRows(backfill=3), sb.NonzeroRows(backfill=3)
    before({"row": torch.zeros(2, 2)}, torch.ones(2))
    backfill.load_state_dict(before.state_dict())
    rows = {"row": torch.ones(2, 2, device="cuda")}
    [(batch, selection)] = backfill(rows, torch.ones(2, device=values_on))
    assert batch["row"].is_cuda
    assert batch["row"][:, 0].tolist() == [0.0, 0.0, 1.0]
    assert selection.indices.tolist() == [0, 1, 0]
