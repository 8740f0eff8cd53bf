"""Find images that nearly repeat an earlier one: likely pairs by spectra, then by pixels."""

import math

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, conv2d, normalize

from selective_backprop._core.types import Float, Int64, UInt8

LARGEST_SIDE = 32  # pixels, to which larger images are reduced
FREQUENCIES = 8  # lowest frequencies of an image in its spectrum, in each direction
SHIFTED = 12  # an image may be shifted by its side divided by this: 2 pixels of 28 or 32
NEIGHBOURS = 3  # earlier images of the same cell that an image is compared with
TURNS = 3  # searches, each with new cells: a pair that is split in one is together in another
CELL_MOST = 8192  # larger cells are divided, so that one large cell does not take n² steps
AT_ONCE = 512  # images or pairs at once: 12 MB of windows, in colour


def pool(images: Tensor) -> Float[Tensor, "row channel height width"]:
    """Shrink images to at most `LARGEST_SIDE` pixels a side, by averaging pixels."""
    images = images.reshape(len(images), -1, *images.shape[-2:]).float()
    height, width = (min(side, LARGEST_SIDE) for side in images.shape[-2:])
    return adaptive_avg_pool2d(images, (height, width))


def standardised(numbers: Float[Tensor, "row number"]) -> Float[Tensor, "row number"]:
    """Return columns with mean 0 and deviation 1; a column that does not vary becomes 0."""
    deviations = numbers.std(0)
    return (numbers - numbers.mean(0)) / deviations.where(deviations > 0, 1.0)


def shrink_images(
    images: Tensor,
) -> tuple[UInt8[Tensor, "row channel height width"], Float[Tensor, "row amplitude"]]:
    """Return images of at most 32 pixels a side, each scaled to 256 levels, and their spectra.

    A spectrum holds the amplitudes of the lowest frequencies, scaled to length 1. It is of the grey
    image, faded towards its edges, since shifts move details across them.
    """
    pooled = pool(images).nan_to_num(0.0, 0.0, 0.0)
    lowest, highest = pooled.amin((1, 2, 3), True), pooled.amax((1, 2, 3), True)
    levels = (pooled - lowest) * (255 / (highest - lowest).clamp(min=1e-30))
    grey = levels.mean(1, keepdim=True)
    rows, columns = (torch.hann_window(s + 2, periodic=False)[1:-1].sqrt() for s in grey.shape[-2:])
    window = rows[:, None] * columns
    level = (grey * window).sum((-2, -1), keepdim=True) / window.sum()
    amplitudes, height = torch.fft.rfft2((grey - level) * window).abs(), grey.shape[-2]
    most = max(1, min(FREQUENCIES, height // 2))
    lows = torch.cat([amplitudes[:, :, :most], amplitudes[:, :, height + 1 - most :]], 2)
    return levels.round().to(torch.uint8), normalize(lows[..., :most].flatten(1))


def link_images(
    images: UInt8[Tensor, "row channel height width"],
    spectra: Float[Tensor, "row amplitude"],
    least: float,
) -> Int64[Tensor, " row"]:
    """Return for each image the earliest image that it nearly repeats, or the image itself.

    Each image is compared with a few earlier ones of similar spectra. For n images, this takes
    about n^1.5 comparisons of spectra, and a few times n comparisons of pixels.
    """
    first = own = torch.arange(len(images))
    if len(images) > 1:
        spectra = standardised(spectra)
    generator = torch.Generator().manual_seed(0)
    for _ in range(TURNS):
        kept = (first == own).nonzero().flatten()
        pairs = kept[_neighbours(spectra[kept], generator)]
        pairs = pairs[correlate(images, pairs) >= least]
        first = first.scatter_reduce(0, pairs[:, 0], pairs[:, 1], "amin")
        while not torch.equal(first, earlier := first[first]):
            first = earlier
        # An image that is linked through others must itself be like the first of them.
        linked = torch.stack([own, first], 1)[first != own]
        unlike = linked[correlate(images, linked) < least, 0]
        first = first.index_copy(0, unlike, unlike)
    return first


def _neighbours(
    spectra: Float[Tensor, "row amplitude"], generator: torch.Generator
) -> Int64[Tensor, "pair 2"]:
    """Return pairs of each row and the nearest earlier rows of its cell.

    A few rows are drawn at random. The rows that are nearest to the same drawn row form a cell.
    """
    count = len(spectra)
    centres = spectra[torch.randperm(count, generator=generator)[: math.ceil(math.sqrt(count) / 2)]]
    cells = torch.cat([torch.cdist(part, centres).argmin(1) for part in spectra.split(AT_ONCE)])
    found = []
    for members in cells.argsort(stable=True).split(cells.bincount().tolist()):
        for cell in members.split(CELL_MOST):
            for part in cell.split(AT_ONCE):
                apart = torch.cdist(spectra[part], spectra[cell])
                apart = apart.masked_fill(cell >= part[:, None], math.inf)
                nearest = apart.topk(min(NEIGHBOURS, len(cell)), largest=False)
                row, column = nearest.values.isfinite().nonzero(as_tuple=True)
                found.append(torch.stack([part[row], cell[nearest.indices[row, column]]], 1))
    return torch.cat(found)


def correlate(
    images: UInt8[Tensor, "row channel height width"], pairs: Int64[Tensor, "pair 2"]
) -> Float[Tensor, " pair"]:
    """Return the correlation of the images of each pair, at the shift where it is highest.

    The inner part of the first image is compared with each window of its size in the second.
    Brightness and contrast do not matter. If either hardly varies, the correlation is near 0.
    """
    height, width = images.shape[-2:]
    down, right = height // SHIFTED, width // SHIFTED
    found = [torch.empty(0)]
    for part in pairs.split(AT_ONCE) if len(pairs) else ():
        inner, whole = (images[part[:, side]].float() for side in (0, 1))
        inner = inner[..., down : height - down, right : width - right]
        inner = inner - inner.mean((1, 2, 3), keepdim=True)
        everywhere = torch.ones_like(inner)
        sums, squares = _slide(everywhere, whole), _slide(everywhere, whole.square())
        numbers = inner[0].numel()
        # A window that varies by less than one level is flat, except for rounding.
        spread = (squares - sums.square() / numbers).clamp(min=numbers)
        norm = inner.square().sum((1, 2, 3)).clamp(min=1.0)[:, None, None]
        found.append((_slide(inner, whole) / (spread * norm).sqrt()).amax((1, 2)))
    return torch.cat(found)


def _slide(
    inner: Float[Tensor, "pair channel down right"],
    whole: Float[Tensor, "pair channel height width"],
) -> Float[Tensor, "pair vertical horizontal"]:
    """Return the inner product of each pair's inner part with each window of its whole image."""
    # One group for each image and channel, so that a single convolution serves all of them.
    kernels = inner.flatten(0, 1)[:, None]
    products = conv2d(whole.flatten(0, 1)[None], kernels, groups=len(kernels))[0]
    return products.unflatten(0, inner.shape[:2]).sum(1)
