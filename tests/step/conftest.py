"""Small nets are enough: what they compute is reused too, though it gains nothing."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _small_and_seeded(monkeypatch):
    monkeypatch.setattr("selective_backprop.experimental._reuse.operations.WORTHWHILE", 0)
    torch.manual_seed(0)
