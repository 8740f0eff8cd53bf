"""Leave out what a stream repeats, by a hash of each example."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from selective_backprop._batches.structure import PLAIN
from selective_backprop._core.errors import LoaderError, warn
from selective_backprop._core.options import check_whole

MANY = 100_000  # copies in a row


def unique_stream(examples: Iterable[Any], *, most: int = 10_000_000) -> Dataset[Any]:
    """Leave out each example of a stream that is, byte for byte, a copy of an earlier one.

    Targets count too: equal inputs with different targets are both kept. Each distinct example is
    remembered by 64 bits, in about 100 bytes of memory. Of a billion distinct examples, there is a
    chance of 1 in 37 that one is mistaken for a copy. Each iteration begins with an empty memory.

    Copies are found within a process. With several workers or ranks, each sees only its own part of
    the stream, so copies of another part's examples remain.

    Args:
        examples: an iterable data set, or another iterable. It yields one example at a time: a
            tensor, an array, a number, a string, or a tuple, list or mapping of these.
        most: how many distinct examples are remembered, at least half of them the last ones that
            came. The default takes up to 1 GB.

    Raises:
        LoaderError: while iterating, if an example holds anything else, such as a picture of PIL.
    """
    return _UniqueStream(examples, int(check_whole("most", most, least=2)) // 2)


class _UniqueStream(IterableDataset[Any]):
    def __init__(self, examples: Iterable[Any], half: int) -> None:
        self._examples, self._half = examples, half

    def set_epoch(self, epoch: int) -> None:
        getattr(self._examples, "set_epoch", int)(epoch)

    def __iter__(self) -> Iterator[Any]:
        recent, earlier, copies = set[int](), set[int](), 0
        for example in self._examples:
            found = hash(_contents(example))
            if new := found not in recent and found not in earlier:
                yield example
            copies = 0 if new else copies + 1
            if copies == MANY:
                warn(
                    f"unique_stream: the last {MANY:,} examples were copies of earlier ones. If "
                    "the stream repeats itself without end, nothing new will come: end it after a "
                    "pass"
                )
            recent.add(found)  # also a copy, so that what comes often is never forgotten
            if len(recent) >= self._half:
                recent, earlier = set(), recent


def _contents(part: Any) -> Any:
    if isinstance(part, (list, tuple)):
        return tuple(map(_contents, part))
    if isinstance(part, Mapping):
        return tuple((key, _contents(each)) for key, each in part.items())
    if isinstance(part, Tensor):
        raw = part.detach().cpu().contiguous().flatten().view(torch.uint8)
        return part.dtype, part.shape, raw.numpy().tobytes()
    if isinstance(part, (np.ndarray, np.generic)) and not part.dtype.hasobject:
        return part.dtype, part.shape, part.tobytes()
    if type(part) in PLAIN:
        return type(part), repr(part)  # -1 and -2 have the same hash, and each NaN another one
    raise LoaderError(
        f"an example holds a {type(part).__name__}, whose bytes are not known. unique_stream needs "
        "tensors, arrays, numbers and strings: convert it before, as by ToTensor()"
    )
