"""Find examples that repeat an earlier one: exactly, or nearly (images), before any training."""

import math
import textwrap
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import conv2d, normalize
from torch.utils.data import DataLoader, Dataset

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.errors import LoaderError
from selective_backprop._core.options import check_number
from selective_backprop._core.types import Bool, Float, Int64, UInt8
from selective_backprop._pipeline.rows import kept_streams
from selective_backprop._pipeline.source import Source
from selective_backprop._pruning.example_scores import load_all, load_twice, open_in_order
from selective_backprop._sampling.subset import Subset
from selective_backprop.guide import _row_contents as contents

LOADED = 256  # examples per batch, if a data set comes without a loader
FREQUENCIES = 8  # lowest frequencies of an image in its spectrum, in each direction
SHIFTED = 12  # an image may be shifted by its side divided by this: 2 pixels of 28 or 32
NEIGHBOURS = 3  # earlier images of the same cell that an image is compared with
TURNS = 3  # searches, each with new cells: a pair that is split in one is together in another
CELL_MOST = 8192  # larger cells are divided, so that one large cell does not take n² steps
AT_ONCE = 512  # images or pairs at once: 12 MB of windows, in colour


@final
@dataclass(frozen=True, eq=False)
class Copies:
    """Which examples of a data set repeat an earlier one that has the same target.

    Attributes:
        first: for each example, the index of the first one that it repeats, or its own: it is kept.
        exact: True for each exact copy; False for near copies and for kept examples.
        conflicts: pairs of examples with equal or nearly equal inputs and different targets, the
            earlier one first. Both are kept: the data do not say which target is right.
    """

    first: Int64[Tensor, " example"]
    exact: Bool[Tensor, " example"]
    conflicts: Int64[Tensor, "conflict 2"]

    @property
    def pairs(self) -> Int64[Tensor, "copy 2"]:
        """Pairs of a kept example and its copy, in the order of the copies."""
        own = torch.arange(len(self.first))
        return torch.stack([self.first, own], 1)[self.first != own]

    @property
    def share(self) -> float:
        """The share of examples that repeat an earlier one, in [0, 1)."""
        return len(self.pairs) / len(self.first)

    @property
    def subset(self) -> Subset:
        """The data set without copies, for `pruned` or for the `within` method of a strategy."""
        return Subset(self.first.unique(), len(self.first), source="each once, by find_copies")

    @cached_property
    def weights(self) -> Float[Tensor, " example"]:
        """How often each kept example occurs, divided by the mean of these counts; 0 for copies."""
        counts = self.first.bincount(minlength=len(self.first))
        return counts * (len(self.subset) / len(self.first))

    def __repr__(self) -> str:
        copies, examples = len(self.pairs), len(self.first)
        return (
            f"{copies:,} of {examples:,} examples ({self.share:.2%}) repeat an earlier one, "
            f"{int(self.exact.sum()):,} of them exactly; {len(self.conflicts):,} have the inputs "
            "of an earlier one and another target"
        )


def find_copies(data: DataLoader[Any] | Dataset[Any], *, near: float | None = 0.99) -> Copies:
    """Find examples that repeat an earlier one, so that training can leave them out.

    No model is needed. Two examples are exact copies if their input tensors have the same bytes.
    Zeros at the end, as in padded texts, are ignored. So is an integer of each example that is its
    index in the data set. Two images are near copies if their correlation is at least `near`, after
    one is shifted by up to a twelfth of its side to fit the other. Brightness and contrast do not
    matter. Images of more than 32 pixels a side are compared at 32. Some near copies are missed,
    and very simple images can be mistaken for near copies: look at `pairs`.

    Images are inputs `[channel, height, width]` of at most four channels, and `[height, width]`
    that are square or of bytes, with sides of at least 8. The search needs 100 MB of memory, and
    7,500 bytes for each image, or 100 for another example. Nothing else is changed.

    Args:
        data: a loader or data set. Its examples are tuples `(inputs, targets, …)`, mappings with a
            key `labels`, `label`, `targets`, `target` or `y`, or inputs alone. Give pictures of PIL
            the transform `ToTensor()`. A loader must go through the whole data set in order.
        near: the least correlation of near copies, above 0, at most 1. None finds exact ones only.

    Raises:
        LoaderError: if a loader shuffles or leaves examples out, or if examples change from one
            reading to the next, hold anything but tensors and arrays of numbers, or differ in size.
    """
    near = check_number("near", near, above=0, most=1, optional=True)
    given: Any = data
    source = open_in_order(DataLoader(given, LOADED) if hasattr(given, "__getitem__") else given)
    try:
        return _find(source, near)
    except RuntimeError as error:
        if "equal size" not in str(error):  # what torch says of examples that it cannot stack
            raise
        what = "resize images, or pass DataLoader(data, batch_size=1) and near=None"
        raise LoaderError(f"examples differ in size: {what}") from error


def _find(source: Source, near: float | None) -> Copies:
    first, rows = zip(*load_twice(source), strict=True)
    positions, found = list(range(sum(rows))), [*map(_tensors, first)]
    if len({tuple(map(len, parts)) for parts in found}) > 1:
        raise LoaderError("examples hold different numbers of tensors. Turn lists into tensors")
    numberings = [contents.find_numbering(part, positions) for part in zip(*found, strict=True)]
    inputs, targets, images, spectra = [], [], [], []
    with kept_streams(source.loader, None):
        for batch, _ in load_all(source):
            shown, aims = map(contents.without, _tensors(batch), numberings)
            inputs += contents.hash_rows(shown)
            targets += contents.hash_rows(aims) if aims else [0] * len(shown[0])
            if near is not None and len(shown) == 1 and contents.is_image(shown[0]):
                small, spectrum = shrink_images(shown[0])
                images.append(small)
                spectra.append(spectrum)
    same = alike = contents.first_equal(torch.tensor(inputs))
    if near is not None and images:
        if len({each.shape[1:] for each in images}) > 1 or sum(map(len, images)) < len(inputs):
            raise LoaderError("images differ in size or channels: resize them, or pass near=None")
        once, place = same.unique(return_inverse=True)
        # Each list is emptied as soon as it is joined, so that at most two copies are in memory.
        pixels, amplitudes = (_taken(parts, once) for parts in (images, spectra))
        alike = once[link_images(pixels, amplitudes, near)][place]
    own = torch.arange(len(same))
    kept = contents.first_equal(alike * len(same) + contents.first_equal(torch.tensor(targets)))
    # `alike` names an earlier example, but that one has another target, so both are kept.
    apart = (kept == own) & (alike != own)
    exact = (kept != own) & (same == same[kept])
    return Copies(kept, exact, torch.stack([alike, own], 1)[apart])


def _taken(parts: list[Tensor], rows: Int64[Tensor, " row"]) -> Tensor:
    whole = torch.cat(parts)
    parts.clear()
    return whole if len(rows) == len(whole) else whole[rows]


def _tensors(batch: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors of a batch's inputs and of its targets; refuse anything else."""
    parts = [part for part in contents.split_batch(batch) if part is not None]
    shown, *aims = found = [contents.tensors_of(part) for part in parts]
    leaves = [leaf for part in parts for leaf in list_leaves(part)]
    lengths = {len(tensor) for part in found for tensor in part}
    if not shown or len(lengths) > 1 or sum(map(len, found)) < len(leaves):
        held = ", ".join(str(getattr(leaf, "shape", leaf)) for leaf in leaves)
        raise LoaderError(
            f"a batch holds {textwrap.shorten(held, 100, placeholder=' …')}. find_copies needs "
            "tensors or arrays of numbers with a row for each example. Pass a data set that yields "
            "nothing else; for text, pass its tokens."
        )
    return shown, aims[0] if aims else []


def shrink_images(
    images: Tensor,
) -> tuple[UInt8[Tensor, "row channel height width"], Float[Tensor, "row amplitude"]]:
    """Return images of at most 32 pixels a side, each scaled to 256 levels, and their spectra.

    A spectrum holds the amplitudes of the lowest frequencies, scaled to length 1. It is of the grey
    image, faded towards its edges, since shifts move details across them.
    """
    pooled = contents.pool(images).nan_to_num(0.0, 0.0, 0.0)
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

    Each image is compared with a few earlier ones of similar spectra, found in about n^1.5 steps.
    """
    first = own = torch.arange(len(images))
    if len(images) > 1:
        spectra = contents.standardised(spectra)
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
