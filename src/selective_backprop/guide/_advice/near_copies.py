"""How many examples repeat another: exactly, by a hash, and nearly, by their neighbours."""

import math

import torch
from torch import Tensor

from selective_backprop._core.types import Float
from selective_backprop._pruning.near_images import low_frequencies, pool, standardised

LEAST_SIDE = 8  # pixels: what is smaller is a table
SKETCHED, PROJECTED = 1024, 64  # numbers that longer inputs are sketched to, and of a descriptor
QUERIES = 2000  # examples whose neighbours are counted
GROUPS, REFERENCES = 16, 32  # of references, and in each of them
LONELY = 0.9  # quantile of distances that the dimension is estimated from
MUCH_CLOSER = 0.3  # of the distance that is usual
BY_CHANCE = 0.01  # share that may lie so close by chance
LEAST_DESCRIBED = 2 * GROUPS * REFERENCES  # examples


def hash_rows(leaves: list[Tensor]) -> list[int]:
    """Return a hash of each row of several tensors, which zeros at a row's end leave as it is."""
    parts = [leaf.contiguous().view(torch.uint8).reshape(len(leaf), -1).numpy() for leaf in leaves]
    return [hash(tuple(r.tobytes().rstrip(b"\0") for r in row)) for row in zip(*parts, strict=True)]


def is_image(leaf: Tensor) -> bool:
    """Return whether a batch's tensor holds images, by its shape."""
    return leaf.ndim in (3, 4) and min(leaf.shape[-2:]) >= LEAST_SIDE


def as_numbers(leaves: list[Tensor]) -> Float[Tensor, "row number"]:
    """Return the inputs as numbers: images pooled, and longer ones as sums by random signs.

    Source:
        Charikar, Chen and Farach-Colton 2002, "Finding frequent items in data streams": the count
        sketch, which keeps inner products on average.
    """
    parts = []
    for leaf in leaves:
        rows = (pool(leaf) if is_image(leaf) else leaf).flatten(1).float()
        if rows.shape[1] > SKETCHED:
            generator = torch.Generator().manual_seed(0)
            places = torch.randint(2 * SKETCHED, (rows.shape[1],), generator=generator)
            signed = rows * (1 - 2 * (places % 2))
            rows = torch.zeros(len(rows), SKETCHED).index_add_(1, places // 2, signed)
        parts.append(rows)
    return torch.cat(parts, 1).nan_to_num(0.0, 0.0, 0.0)


def describe_images(images: Tensor) -> Float[Tensor, "row projected"]:
    """Describe images so that near-copies have nearly the same descriptor.

    It holds the amplitudes of the lowest frequencies, which a shift leaves as they are, without the
    mean level and with length 1, so that light and contrast do not matter.
    """
    pooled = pool(images)
    return _projected(low_frequencies(pooled - pooled.mean((-2, -1), keepdim=True)))


def describe_numbers(numbers: Float[Tensor, "row number"]) -> Float[Tensor, "row projected"]:
    """Describe other inputs by their numbers, each in deviations from its mean."""
    return _projected(standardised(numbers))


def _projected(rows: Float[Tensor, "row number"]) -> Float[Tensor, "row projected"]:
    rows = rows.nan_to_num(0.0, 0.0, 0.0)
    if rows.shape[1] <= PROJECTED:
        return rows
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(rows.shape[1], PROJECTED, generator=generator) / math.sqrt(PROJECTED)
    return rows @ projection


def share_alike(described: Float[Tensor, "example projected"]) -> float:
    """Return about the share of at least `LEAST_DESCRIBED` examples that nearly repeat another.

    In a group of `c` examples that are alike, `c − 1` repeat another. An example's group is what
    lies much closer to it than is usual for data of this size. What is usual follows from its
    distance to the nearest of a few random references, among which its copies seldom are: in data
    of dimension `m`, the nearest of `n` examples is `(n / references) ** (-1 / m)` times as far.
    Where no example is like another, the share is at most about `BY_CHANCE`.
    """
    count = len(described)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(count, generator=generator)
    queries = order[-min(QUERIES, count - GROUPS * REFERENCES) :]
    # They are no queries: an example's distance to itself would be the nearest.
    references = described[order[: GROUPS * REFERENCES]]
    apart = torch.cdist(described[queries], references).unflatten(1, (GROUPS, REFERENCES))
    near, nearest = apart.amin(2).median(1).values, apart.amin((1, 2))
    # By examples that are far from all: the fewest of these have a copy among the references.
    growth = float(near.quantile(LONELY) / nearest.quantile(LONELY).clamp(min=1e-12))
    dimension = math.log(GROUPS) / math.log(max(growth, 1.01))
    closer = min(MUCH_CLOSER, BY_CHANCE ** (1 / dimension))
    radii = closer * near * (count / REFERENCES) ** (-1 / dimension)
    shares = []
    for each, radius in zip(queries.split(256), radii.split(256), strict=True):
        alike = torch.cdist(described[each], described) <= radius[:, None]
        alike[torch.arange(len(each)), each] = False
        others = alike.sum(1)
        shares.append(others / (others + 1))
    return float(torch.cat(shares).mean())
