"""Leave out what a stream repeats, by a hash of each example."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from selective_backprop._batches.structure import named_leaves
from selective_backprop._core.errors import LoaderError
from selective_backprop._core.options import check_whole

PLAIN = (str, bytes, int, float, complex, bool, type(None))


def unique_stream(examples: Iterable[Any], *, most: int = 10_000_000) -> Dataset[Any]:
    """Leave out each example of a stream that is, byte for byte, a copy of an earlier one.

    Pass the result to a `DataLoader` in place of `examples`, which yields one example at a time:
    a tensor, a NumPy array, a number or a string, or a tuple, list or mapping of these. Targets
    count too, so equal inputs with different targets are both kept.

    Each distinct example is remembered by 64 bits, in about 100 bytes of memory. Of a billion
    distinct examples, there is a chance of 1 in 37 that one is mistaken for a copy. Each iteration
    begins with an empty memory; so does a run that resumes in the middle of a stream.

    Copies are found within one process. With several workers or ranks, each sees only its own part
    of the stream, so a copy remains if another one has the example that it repeats. To avoid it,
    divide the stream by its content, or read it in one process.

    Args:
        examples: an iterable data set, or another iterable.
        most: how many distinct examples are remembered, at least half of them the last ones that
            came. The default takes up to 1 GB.

    Raises:
        LoaderError: while iterating, if an example holds anything else, such as a picture of PIL.
    """
    return _UniqueStream(examples, int(check_whole("most", most, least=2)))


class _UniqueStream(IterableDataset[Any]):
    def __init__(self, examples: Iterable[Any], most: int) -> None:
        self._examples, self._half = examples, most // 2

    def set_epoch(self, epoch: int) -> None:
        getattr(self._examples, "set_epoch", int)(epoch)

    def __iter__(self) -> Iterator[Any]:
        recent, earlier = set[int](), set[int]()
        for example in self._examples:
            found = hash(tuple(map(_contents, named_leaves(example))))
            known = found in recent or found in earlier
            recent.add(found)  # also a copy, so that what comes often is never forgotten
            if len(recent) >= self._half:
                recent, earlier = set(), recent
            if not known:
                yield example


def _contents(named: tuple[str, Any]) -> object:
    path, leaf = named
    if isinstance(leaf, Tensor):
        raw = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return path, leaf.dtype, leaf.shape, raw.tobytes()
    if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind != "O":
        return path, leaf.dtype, leaf.shape, leaf.tobytes()
    parts = leaf if isinstance(leaf, (list, tuple)) else [leaf]
    if not all(isinstance(part, PLAIN) for part in parts):
        raise LoaderError(
            f"an example holds a {type(leaf).__name__}, whose bytes are not known. unique_stream "
            "needs tensors, arrays, numbers and strings: convert it before, as by ToTensor()"
        )
    return path, *((type(part), part) for part in parts)
