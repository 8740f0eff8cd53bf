"""What a sampler yields for a batch: keys of examples, as a tensor if they are integers."""

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Keys: TypeAlias = Tensor | list[Any]


def list_keys(indices: Any) -> Keys | None:
    """Return the keys of a batch, integers as an int64 tensor `[row]`; None of a single key."""
    if isinstance(indices, (Tensor, np.ndarray)):
        if not indices.ndim:
            return None
    elif not isinstance(indices, (list, tuple, range)):
        return None
    try:
        array = np.asarray(indices)
    except ValueError:  # keys such as tuples of different lengths
        return list(indices)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        return list(indices)
    # A list was copied already. An array belongs to the sampler, which may change it.
    copied = isinstance(indices, (list, tuple, range))
    return torch.from_numpy(array.astype(np.int64, copy=not copied))


def plain_list(keys: Keys) -> list[Any]:
    """Return keys as a list, which is what a data loader takes."""
    return keys.tolist() if isinstance(keys, Tensor) else keys
