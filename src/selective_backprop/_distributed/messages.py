"""What ranks send one another: once how they were built, and new scores at each training batch."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._distributed.group import Group

HEAD = 5  # numbers that stand before the scores: their count, and a `Head`


class Status(IntEnum):
    READY = 0  # holds a full training batch
    ENDED = 1  # has none left in this epoch
    FAILED = 2  # is about to raise
    OPENING = 3  # begins an epoch


class Head(NamedTuple):
    status: Status
    epoch: int
    exchanges: int  # exchanges in this epoch before this one
    drawn: int = 0  # candidate batches since training began

    @property
    def place(self) -> tuple[bool, int, int]:
        """What must be the same on all ranks."""
        return self.status is Status.OPENING, self.epoch, self.exchanges

    def __str__(self) -> str:
        if self.status is Status.OPENING:
            return f"opens epoch {self.epoch}"
        return f"is at exchange {self.exchanges} of epoch {self.epoch}"


Swapped: TypeAlias = tuple[list[Head], list[Tensor]]  # the heads and scores of all ranks


class Exchange:
    """One all-gather of one small message from each rank.

    A message has `rows + 5` numbers of 4 bytes, however few scores there are: their number, the
    head, and the scores' bits as float32. To read the heads, the host waits for the device once.
    """

    def __init__(self, group: Group, rows: int) -> None:
        self.group, self.rows = group, rows  # as many rows on all ranks

    def send(self, head: Head, scores: Sequence[Tensor] = ()) -> Callable[[], Swapped]:
        """Send a head and up to `rows` scores; return a function that waits for those of all."""
        message = torch.zeros(HEAD + self.rows, dtype=torch.int32, device=self.group.device)
        count = 0
        for piece in scores:
            bits = piece.detach().to(torch.float32).contiguous().view(torch.int32)
            message[HEAD + count : HEAD + count + len(bits)] = bits
            count += len(bits)
        numbers = [number % 2**31 for number in (count, *head)]
        # copied without waiting for the device
        message[:HEAD].copy_(torch.tensor(numbers, dtype=torch.int32), non_blocking=True)
        return partial(self._read, self.group.send(message, str(head)))

    def _read(self, arrive: Callable[[], Tensor]) -> Swapped:
        gathered = arrive()
        numbers = gathered[:, :HEAD].tolist()
        heads = [Head(Status(status), *rest) for _, status, *rest in numbers]
        scores = gathered[:, HEAD:].view(torch.float32)
        self._check(heads)
        return heads, [own[:count] for own, (count, *_) in zip(scores, numbers, strict=True)]

    def _check(self, heads: list[Head]) -> None:
        mine = heads[self.group.rank]
        strayed = [rank for rank, head in enumerate(heads) if head.place != mine.place]
        if strayed:
            others = ", ".join(f"rank {rank} {heads[rank]}" for rank in strayed)
            raise LoaderError(
                f"the ranks are out of step: rank {self.group.rank} {mine}, {others}. All ranks "
                "must ask for the same batches of the same loaders. Leave epochs early, number "
                "epochs and load states in the same way on all ranks."
            )
        failed = [rank for rank, head in enumerate(heads) if head.status is Status.FAILED]
        # A rank that failed itself is about to raise its own error.
        if failed and mine.status is not Status.FAILED:
            raise LoaderError(
                f"rank {', '.join(map(str, failed))} of {self.group.size} failed, so no rank can "
                "go on; see the failed rank's own error"
            )


def compare(group: Group, built: Mapping[str, object], numbers: list[int]) -> list[list[int]]:
    """Return each rank's numbers, below 2**64, after checking that all ranks were built alike."""
    content = json.dumps({name: str(value) for name, value in built.items()}).encode()
    # 63 bits, which fit into an int64 without a sign.
    digest = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") >> 1
    signed = (number - 2**64 * (number >= 2**63) for number in numbers)  # as an int64 holds them
    message = torch.tensor([digest, len(content), *signed])
    gathered = group.gather(message, "opens an epoch").tolist()
    # Whole texts are sent only if digests differ: an epoch usually costs one short message.
    if any(each[0] != digest for each in gathered):
        texts = [b""] * group.size
        own = torch.tensor(list(content), dtype=torch.uint8)
        for rank, _, piece in group.gather_rows(own, [each[1] for each in gathered]):
            texts[rank] += bytes(piece.tolist())
        first, *others = (json.loads(text) for text in texts)
        raise ConfigurationError(
            next(
                f"rank {rank} was built with {name}={other.get(name)}, rank 0 with "
                f"{name}={first.get(name)}; use the same value on all ranks"
                for rank, other in enumerate(others, start=1)
                for name in first | other
                if first.get(name) != other.get(name)
            )
        )
    return [[number % 2**64 for number in each[2:]] for each in gathered]
