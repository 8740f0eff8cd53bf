"""Find examples that repeat an earlier one, before any training."""

import textwrap
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.errors import LoaderError
from selective_backprop._core.options import check_number
from selective_backprop._core.types import Bool, Float, Int64
from selective_backprop._pipeline.rows import kept_streams
from selective_backprop._pipeline.source import Source
from selective_backprop._pruning.example_scores import load_all, load_twice, open_in_order
from selective_backprop._sampling.subset import Subset
from selective_backprop.guide._advice import row_contents as contents
from selective_backprop.guide._near_images import link_images, shrink_images

AT_ONCE = 256  # examples per batch, if a data set comes without a loader
UNEQUAL = ". Resize images, or pass DataLoader(data, batch_size=1) and, for images, near=None"


@final
@dataclass(frozen=True, eq=False)
class Copies:
    """Which examples of a data set repeat an earlier one that has the same target.

    Attributes:
        first: for each example, the index of the first example that it repeats. An example that
            repeats no earlier one is kept, and gets its own index.
        exact: True for each exact copy; False for near copies and for kept examples.
        conflicts: pairs of examples with equal or nearly equal inputs and different targets, the
            earlier example first. Both examples are kept, because the data do not say which target
            is right.
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
        """How often each kept example occurs, divided by the mean of these counts; 0 for copies.

        If you train on `subset`, `(weights[selection.indices] * losses).mean()` estimates the mean
        loss of the whole data set.
        """
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
    matter. Images of more than 32 pixels a side are compared at 32.

    Only images are searched for near copies: inputs `[channel, height, width]` of at most four
    channels, and `[height, width]` that are square or of bytes, with sides of at least 8. A coarse
    search finds likely pairs, so some near copies are missed. Very simple images can be mistaken
    for near copies, so look at `pairs`.

    The search needs 100 MB of memory, and another 7,500 bytes for each image of up to three
    channels, or about 100 bytes for any other example. Loader and random generators are left as
    they were.

    Args:
        data: a loader or data set. Its examples are tuples `(inputs, targets, …)`, mappings with a
            key `labels`, `label`, `targets`, `target` or `y`, or inputs alone. Give pictures of PIL
            the transform `ToTensor()`. A loader must go through the whole data set in order.
        near: the least correlation of near copies, above 0, at most 1; at 0.99 two images share
            98 % of their variance. None finds exact copies only.

    Raises:
        LoaderError: if a loader shuffles or leaves examples out, or if examples change from one
            reading to the next, hold anything but tensors and arrays of numbers, or differ in size.
            For those that differ in size, pass a loader with `batch_size=1`.
    """
    near = check_number(
        "near", near, "0.99 allows for 2 % of the variance", above=0, most=1, optional=True
    )
    given: Any = data
    source = open_in_order(DataLoader(given, AT_ONCE) if hasattr(given, "__getitem__") else given)
    try:
        return _find(source, near)
    except RuntimeError as error:
        if "equal size" not in str(error):  # what torch says of examples that it cannot stack
            raise
        raise LoaderError(f"examples differ in size{UNEQUAL}") from error


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
            raise LoaderError(f"images differ in size or channels{UNEQUAL}")
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
