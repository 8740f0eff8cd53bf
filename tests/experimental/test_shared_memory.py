"""Batches travel through shared memory as they are."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import selective_backprop as sb
from selective_backprop.experimental._pipelined.process_backend import (
    SharedMessage,
    allocate,
    read,
)


@dataclass
class Texts:
    texts: list[str]
    inputs: torch.Tensor


VALUES = {
    "a tuple": (torch.arange(3), None),
    "a dictionary": {"a": [torch.rand(2, 3), {"b": torch.rand(1) > 2}], "c": "d", "e": 1.5},
    "channels last": Texts(
        ["a", "b" * 1000], torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    ),
    "expanded": torch.rand(3, 1).expand(3, 4),
    "cut and turned": torch.rand(6, 5)[::2, 1:].T,
    "empty, half and not torch's": (
        *(torch.zeros(0, 3), torch.tensor(2.0, dtype=torch.bfloat16), np.ones(3)),
    ),
    "with a gradient": torch.rand(3).requires_grad_(),
    "packed": nn.utils.rnn.pack_sequence([torch.rand(3, 2), torch.rand(1, 2)]),
    "sparse": torch.eye(3).to_sparse(),
    "nothing": [],
    "conjugated": torch.randn(2, dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_batch_arrives_as_it_was_sent(value):
    message = SharedMessage(value)
    buffer = allocate(message.size)
    arrived = read(buffer, *message.write(buffer))
    assert str(arrived).replace(", requires_grad=True", "") == str(value).replace(
        ", requires_grad=True", ""
    )
    if isinstance(value, Texts):
        assert arrived.inputs.stride() == value.inputs.stride()


def test_what_is_elsewhere_is_refused():
    with pytest.raises(sb.BatchError, match="tensor on meta"):
        SharedMessage([torch.zeros(2, device="meta")])


def test_too_little_shared_memory_is_told_of(monkeypatch):
    def fail(tensor):
        raise RuntimeError("unable to allocate shared memory(shm)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", fail)
    with pytest.raises(sb.LoaderError, match=r"^5 bytes.*\(shm\)"):
        allocate(5)
