"""What a sampler yields for a batch: keys of examples, as a tensor where they are integers."""

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Keys: TypeAlias = Tensor | list[Any]


def list_keys(indices: Any) -> Keys | None:
    """Return the keys of a batch, or None if `indices` is a single key.

    Integers are an int64 tensor `[row]`, which is fast to index and join; other keys are a list.
    """
    if isinstance(indices, (Tensor, np.ndarray)):
        if not indices.ndim:
            return None
    elif not isinstance(indices, (list, tuple)):
        return None
    try:
        array = np.asarray(indices)
    except ValueError:  # keys such as tuples of different lengths
        return list(indices)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        return list(indices)
    # Not copied again if it was made of a list; arrays are the sampler's own and may change.
    return torch.from_numpy(array.astype(np.int64, copy=not isinstance(indices, (list, tuple))))


def plain_list(keys: Keys) -> list[Any]:
    """Return keys as the list that a data loader takes."""
    return keys.tolist() if isinstance(keys, Tensor) else keys
