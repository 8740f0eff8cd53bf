"""The processes that train together, and what they send one another."""

import atexit
import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, distributed

from selective_backprop._core.errors import ConfigurationError, LoaderError

CPU = torch.device("cpu")
MOST_AT_EXIT = 5.0  # seconds; gloo's thread takes microseconds, unless the machine is busy
MOST_AT_ONCE = 2**20  # rows of all ranks together in one message; more are sent in pieces
HEAD = 5  # numbers that stand before the scores: their count, and a `Head`


@dataclass(frozen=True)
class Group:
    """One of the processes that train one model, each on its own shard of the data."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU  # of the messages
    members: Any = None  # torch's process group; None for all processes

    def gather(self, message: Tensor, doing: str) -> Tensor:
        return self.send(message, doing)()

    def send(self, message: Tensor, doing: str) -> Callable[[], Tensor]:
        """Begin a `gather`; return a function that waits for it and returns its result."""
        with torch.inference_mode(False):  # in inference mode, a view does not hold its tensor
            message = message.to(self.device, copy=True).contiguous()
            places = [torch.empty_like(message) for _ in range(self.size)]
            if self.device.type == "cpu":
                _keep([message, *places])
        begun = time.monotonic()

        @contextmanager
        def explained() -> Generator[None]:
            try:
                yield
            except RuntimeError as error:
                others = ", ".join(str(rank) for rank in range(self.size) if rank != self.rank)
                raise LoaderError(
                    f"rank {self.rank}, which {doing}, waited {time.monotonic() - begun:.1f} s for "
                    f"rank {others}: one has died (its output says why), or took longer than the "
                    "timeout= of init_process_group, which you can raise. Torch says: "
                    f"{str(error).splitlines()[0]}"
                ) from error

        with explained():
            work = distributed.all_gather(places, message, group=self.members, async_op=True)

        def arrive() -> Tensor:
            with explained():
                work.wait()
            return torch.stack(places)

        return arrive

    def gather_rows(self, rows: Tensor, counts: Sequence[int]) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the rows of all ranks in pieces, in one order, each with its rank and place."""
        most = max(1, MOST_AT_ONCE // self.size)
        for start in range(0, max(counts), most):
            length = min(most, max(counts) - start)
            mine = rows[start : start + length].to(self.device)
            # An all-gather needs the same shape from every rank.
            padded = mine.new_zeros((length, *mine.shape[1:]))
            padded[: len(mine)] = mine
            for rank, piece in enumerate(self.gather(padded, "sends what it has recorded")):
                own = min(length, counts[rank] - start)
                if own > 0:
                    yield rank, start, piece[:own]


# Tensors given to gloo, a view of each, and how often each was held before it was sent.
_kept: dict[int, tuple[Tensor, Tensor, int]] = {}


def _keep(tensors: list[Tensor]) -> None:
    """Keep tensors that are about to be sent until a later call finds that gloo released them.

    A thread of gloo releases a sent tensor a moment later, and needs Python's lock if only Python
    holds the tensor besides. If a model under DDP, the last owner of the process group, is freed in
    that moment, both wait for ever (pytorch/pytorch#56297). A view makes gloo need no lock.
    """
    _forget_sent()
    for tensor in tensors:
        view = tensor.view_as(tensor)
        _kept[id(tensor)] = tensor, view, _holders(tensor)


def _forget_sent() -> None:
    for key, (tensor, _, holders) in list(_kept.items()):
        if _holders(tensor) <= holders:
            _kept.pop(key, None)


@atexit.register
def _wait_for_gloo() -> None:
    """Wait until gloo has released the last tensors: at shutdown, it would abort the process."""
    until = time.monotonic() + MOST_AT_EXIT
    _forget_sent()
    while _kept and time.monotonic() < until:
        time.sleep(0.001)
        _forget_sent()


def _holders(tensor: Tensor) -> int:
    """Return how often a tensor is held outside Python; 0 where torch cannot tell."""
    return getattr(tensor, "_use_count", lambda: 0)()


def find_ranks(members: Any = None, device: torch.device | None = None) -> Group:
    """Return the processes that train together; messages are on `device` if not on the CPU."""
    if not (distributed.is_available() and distributed.is_initialized()):
        if members is None:
            return Group()
        raise ConfigurationError(
            "process_group= was given, but none is running: call init_process_group() first"
        )
    if members is distributed.GroupMember.NON_GROUP_MEMBER:
        raise ConfigurationError(
            "this process does not belong to process_group=; pass a group that it belongs to"
        )
    if not isinstance(members, distributed.ProcessGroup | None):
        raise ConfigurationError(
            f"process_group={members!r} is no process group of torch; pass one such as "
            'new_group(ranks) or device_mesh.get_group("data")'
        )
    size = distributed.get_world_size(members)
    if size == 1:
        return Group()
    return Group(distributed.get_rank(members), size, _device_of(members, device), members)


def _device_of(members: Any, device: torch.device | None) -> torch.device:
    pairs = distributed.get_backend_config(members).split(",")
    backends = dict(pair.partition(":")[::2] for pair in pairs)
    own = None if device is None else backends.get(device.type)
    if device is not None and own is not None and (own == "nccl" or "cpu" not in backends):
        return device
    if "cpu" in backends:
        return CPU
    kind = next(iter(backends))
    return torch.device(kind, torch.get_device_module(kind).current_device())


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
        return self.status is Status.OPENING, self.epoch, self.exchanges

    def __str__(self) -> str:
        if self.status is Status.OPENING:
            return f"opens epoch {self.epoch}"
        return f"is at exchange {self.exchanges} of epoch {self.epoch}"


Swapped: TypeAlias = tuple[list[Head], list[Tensor]]  # the heads and scores of all ranks


class Exchange:
    """One all-gather of a message from each rank: `rows + 5` numbers of 4 bytes.

    These are the number of scores, the head, and the scores' bits as float32.
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
    """Return each rank's numbers, below 2**64; refuse ranks that were not built alike."""
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
                f"rank {rank} has {name}={other.get(name)}, rank 0 has {name}={first.get(name)}; "
                "use the same value on all ranks, and load states of the same moment"
                for rank, other in enumerate(others, start=1)
                for name in first | other
                if first.get(name) != other.get(name)
            )
        )
    return [[number % 2**64 for number in each[2:]] for each in gathered]
