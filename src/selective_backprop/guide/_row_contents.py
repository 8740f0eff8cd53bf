"""Turn the rows of a batch into hashes, and into numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.types import Float, Int64

TARGETS = ("labels", "label", "targets", "target", "y")
LARGEST_SIDE = 32  # pixels, to which larger images are reduced
LEAST_SIDE = 8  # pixels; smaller inputs count as tables
MOST_CHANNELS = 4  # more are those of sensors, say, whose levels differ more than their contents
SKETCHED = 1024  # numbers; longer inputs are shortened to this length by a sketch


def split_batch(batch: Any) -> tuple[Any, Sequence[Any] | None]:
    """Return a batch's inputs, and its targets: in a tuple, all that follows the inputs."""
    if isinstance(batch, Mapping):
        name = next((each for each in TARGETS if each in batch), None)
        rest = {key: part for key, part in batch.items() if key != name}
        return rest, None if name is None else [batch[name]]
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return batch[0], batch[1:]
    return batch, None


def tensors_of(part: Any) -> list[Tensor]:
    """Return the tensors and arrays in a part of a batch that have a row per example."""
    found = []
    for leaf in list_leaves(part):
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf":
            leaf = torch.from_numpy(leaf)
        plain = isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_nested
        if plain and leaf.ndim:
            found.append(leaf.detach().cpu())
    return [leaf for leaf in found if len(leaf) == len(found[0])]


def hash_rows(leaves: list[Tensor]) -> list[int]:
    """Return a hash of each row of several tensors. Zeros at a row's end do not change it."""
    parts = [leaf.contiguous().view(torch.uint8).reshape(len(leaf), -1).numpy() for leaf in leaves]
    return [hash(tuple(r.tobytes().rstrip(b"\0") for r in row)) for row in zip(*parts, strict=True)]


def first_equal(values: Int64[Tensor, " example"]) -> Int64[Tensor, " example"]:
    """Return, for each value, the index of the first equal value."""
    _, first, place = np.unique(values.numpy(), return_index=True, return_inverse=True)
    return torch.from_numpy(first[place])


def find_numbering(sample: Sequence[list[Tensor]], positions: list[int]) -> set[int]:
    """Return which of the tensors only hold the position of each example in the data set.

    `sample` has a few batches' tensors. If all only hold their positions, the first one is none.
    """
    found = {
        place
        for place, parts in enumerate(zip(*sample, strict=True))
        if not any(part.is_floating_point() or part.numel() > len(part) for part in parts)
        and torch.cat([part.flatten() for part in parts]).tolist() == positions
    }
    return found if len(found) < len(sample[0]) else found - {0}


def without(leaves: list[Tensor], places: set[int]) -> list[Tensor]:
    return [leaf for place, leaf in enumerate(leaves) if place not in places]


def is_image(leaf: Tensor) -> bool:
    """Return whether a batch's tensor holds images, by its shape and type.

    Images are `[row, channel, height, width]`, or `[row, height, width]` if they are square or of
    bytes. Others of this shape are sequences, `[row, time, feature]`.
    """
    of_channels = leaf.ndim == 4 and leaf.shape[1] <= MOST_CHANNELS
    grey = leaf.ndim == 3 and (leaf.dtype == torch.uint8 or leaf.shape[1] == leaf.shape[2])
    return (of_channels or grey) and min(leaf.shape[-2:]) >= LEAST_SIDE


def as_numbers(leaves: list[Tensor]) -> Float[Tensor, "row number"]:
    """Return the inputs as numbers. Images are pooled, and long inputs are sketched.

    Source:
        Charikar, Chen and Farach-Colton 2002: the count sketch, a sum with random signs.
    """
    parts = []
    for leaf in leaves:
        rows = (pool(leaf) if is_image(leaf) else leaf).reshape(len(leaf), -1).float()
        if rows.shape[1] > SKETCHED:
            generator = torch.Generator().manual_seed(0)
            places = torch.randint(2 * SKETCHED, (rows.shape[1],), generator=generator)
            signed = rows * (1 - 2 * (places % 2))
            rows = torch.zeros(len(rows), SKETCHED).index_add_(1, places // 2, signed)
        parts.append(rows)
    return torch.cat(parts, 1).nan_to_num(0.0, 0.0, 0.0)


def pool(images: Tensor) -> Float[Tensor, "row channel height width"]:
    """Shrink images to at most `LARGEST_SIDE` pixels a side, by averaging pixels."""
    images = images.reshape(len(images), -1, *images.shape[-2:]).float()
    height, width = (min(side, LARGEST_SIDE) for side in images.shape[-2:])
    return adaptive_avg_pool2d(images, (height, width))


def standardised(numbers: Float[Tensor, "row number"]) -> Float[Tensor, "row number"]:
    """Return columns with mean 0 and deviation 1; a column that does not vary becomes 0."""
    deviations = numbers.std(0)
    return (numbers - numbers.mean(0)) / deviations.where(deviations > 0, 1.0)
