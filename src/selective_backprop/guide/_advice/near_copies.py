"""How often examples repeat each other: exactly, by a hash, and nearly, by their neighbours."""

import math

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, normalize

from selective_backprop._core.types import Float, Int64

LEAST_SIDE = 8  # pixels; what is smaller in its last two axes is taken for a table
LARGEST_SIDE = 32  # pixels; a larger image is pooled to it
FREQUENCIES = 8  # lowest ones of an image that its descriptor has, in each direction
SKETCHED = 1024  # numbers that longer inputs are sketched to
PROJECTED = 64  # numbers of a descriptor
QUERIES = 2000  # examples whose neighbours are counted
GROUPS, REFERENCES = 16, 32  # of references, and in each of them
LONELY = 0.9  # quantile of distances that dimension is told by
MUCH_CLOSER = 0.3  # of the distance that is usual
BY_CHANCE = 0.01  # share that may lie so close by chance
LEAST_DESCRIBED = 2 * GROUPS * REFERENCES  # examples
_FACTORS = (-4658895280553007687, -7723592293110705685)  # of SplitMix64


def hash_rows(leaves: list[Tensor]) -> Int64[Tensor, " row"]:
    """Return a hash of each row of several tensors, which zeros at a row's end leave as it is.

    Rows that are equal bit by bit have the same hash, and others hardly ever.
    """
    hashes = torch.zeros(len(leaves[0]), dtype=torch.int64)
    for leaf in leaves:
        rows = leaf.reshape(len(leaf), -1).contiguous()
        if rows.dtype == torch.bool or rows.is_complex():
            rows = rows.byte() if rows.dtype == torch.bool else torch.view_as_real(rows).flatten(1)
        kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.itemsize]
        places = _mixed(torch.arange(1, rows.shape[1] + 1)) | 1
        at_once = max(1, 2**20 // max(1, rows.shape[1]))  # 8 MB of each intermediate result
        parts = [_mixed(part.view(kind).long() * places).sum(1) for part in rows.split(at_once)]
        hashes = _mixed(hashes + 1) + torch.cat(parts)
    return hashes


def _mixed(bits: Int64[Tensor, "*axes"]) -> Int64[Tensor, "*axes"]:
    """Return bits in which each depends on all; 0 stays 0."""
    bits = (bits ^ (bits >> 30)) * _FACTORS[0]
    bits = (bits ^ (bits >> 27)) * _FACTORS[1]
    return bits ^ (bits >> 31)


def is_image(leaf: Tensor) -> bool:
    """Return whether a batch's tensor holds images, by its shape."""
    return leaf.ndim in (3, 4) and min(leaf.shape[-2:]) >= LEAST_SIDE


def as_numbers(leaves: list[Tensor]) -> Float[Tensor, "row number"]:
    """Return at most `SKETCHED` numbers for each row: the inputs', or a sketch of them.

    Images are pooled. Of whole numbers in a row, such as tokens, each kind is counted. What is
    longer is summed up by random places and signs, which keeps inner products on average.

    Source:
        Charikar, Chen and Farach-Colton 2002, "Finding frequent items in data streams": the count
        sketch.
    """
    parts = [_sketch(_pooled(leaf) if is_image(leaf) else leaf) for leaf in leaves]
    return torch.cat(parts, 1).nan_to_num(0.0, 0.0, 0.0)


def _pooled(images: Tensor) -> Float[Tensor, "row channel height width"]:
    images = images.reshape(len(images), -1, *images.shape[-2:]).float()
    height, width = (min(side, LARGEST_SIDE) for side in images.shape[-2:])
    return adaptive_avg_pool2d(images, (height, width))


def _sketch(leaf: Tensor) -> Float[Tensor, "row number"]:
    whole = not leaf.is_floating_point() and leaf.dtype != torch.bool and leaf.ndim > 1
    rows = leaf.reshape(len(leaf), -1)
    if whole:
        places, values = _mixed(rows.long() + 1) % SKETCHED, (rows != 0).float()
    elif rows.shape[1] <= SKETCHED:
        return rows.float()
    else:
        bits = _mixed(torch.arange(1, rows.shape[1] + 1))
        places, values = bits % SKETCHED, rows.float() * (1 - 2 * (bits >> 40 & 1))
    sketch = torch.zeros(len(rows), SKETCHED)
    return sketch.scatter_add_(1, places.expand(rows.shape), values)


def describe_images(images: Tensor) -> Float[Tensor, "row projected"]:
    """Describe images so that near-copies have nearly the same descriptor.

    It holds the amplitudes of the lowest frequencies, which a shift leaves as they are, without the
    mean level and with length 1, so that light and contrast do not matter.
    """
    pooled = _pooled(images)
    amplitudes = torch.fft.rfft2(pooled - pooled.mean((-2, -1), keepdim=True)).abs()
    most = max(1, min(FREQUENCIES, pooled.shape[-2] // 2))
    lowest = [amplitudes[:, :, :most], amplitudes[:, :, pooled.shape[-2] + 1 - most :]]
    return _projected(normalize(torch.cat(lowest, 2)[..., :most].flatten(1)))


def describe_numbers(numbers: Float[Tensor, "row number"]) -> Float[Tensor, "row projected"]:
    """Describe other inputs by their numbers, each in deviations from its mean."""
    return _projected(standardised(numbers))


def standardised(numbers: Float[Tensor, "row number"]) -> Float[Tensor, "row number"]:
    """Return numbers without their means, in their deviations; what does not vary is 0."""
    deviations = numbers.std(0)
    return (numbers - numbers.mean(0)) / deviations.where(deviations > 0, 1.0)


def _projected(rows: Float[Tensor, "row number"]) -> Float[Tensor, "row projected"]:
    size = rows.shape[1]
    if size <= PROJECTED:
        return rows.nan_to_num(0.0, 0.0, 0.0)
    generator = torch.Generator().manual_seed(0)
    projection = torch.randn(size, PROJECTED, generator=generator) / math.sqrt(PROJECTED)
    return rows.nan_to_num(0.0, 0.0, 0.0) @ projection


def share_alike(described: Float[Tensor, "example projected"]) -> float:
    """Return about the share of the examples that repeat or nearly repeat another one.

    In a group of `c` examples that are alike, `c − 1` repeat another. An example's group is what
    lies much closer to it than is usual for data of this size. What is usual follows from its
    distance to the nearest of a few random references, among which its copies seldom are: in data
    of dimension `m`, the nearest of `n` examples is `(n / references) ** (-1 / m)` times as far.

    Args:
        described: at least `LEAST_DESCRIBED`.

    Returns:
        A share in [0, 1); at most about `BY_CHANCE` where no example is like another.
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
