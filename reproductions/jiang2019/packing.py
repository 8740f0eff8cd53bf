"""One whole number per example, as short as a record can hold it."""

import base64

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

MOST = 2**16
"""Numbers are below this, and so are examples that are ranked."""


def pack(numbers: Int64[Tensor, " example"]) -> str:
    """Return whole numbers from 0 to 65,535 as text, which takes 2.7 bytes for each."""
    return base64.b64encode(numbers.cpu().numpy().astype("<u2").tobytes()).decode("ascii")


def unpack(text: str) -> Int64[Tensor, " example"]:
    """Return what was packed."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), "<u2").astype(np.int64))
