"""Ranks make sure that they were built alike before anything is shared."""

import hashlib
import json
from collections.abc import Mapping

import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._distributed.group import Group


def compare(group: Group, built: Mapping[str, object], numbers: list[int]) -> list[list[int]]:
    """Return each rank's numbers, after checking that all ranks were built alike.

    The values in `built` are compared by what they print. Each rank sends equally many numbers.
    """
    words = json.dumps({name: str(value) for name, value in built.items()}).encode()
    # 63 bits, which fit into an int64 without a sign.
    digest = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little") >> 1
    message = torch.tensor([digest, len(words), *numbers])
    gathered = group.gather(message, "opens an epoch").tolist()
    # Whole texts are sent only if digests differ: an epoch usually costs one short message.
    if any(each[0] != digest for each in gathered):
        texts = [b""] * group.size
        own = torch.tensor(list(words), dtype=torch.uint8)
        for rank, _, piece in group.gather_rows(own, [each[1] for each in gathered]):
            texts[rank] += bytes(piece.tolist())
        first, *others = (json.loads(text) for text in texts)
        raise ConfigurationError(
            next(
                f"rank {rank} was built with {name}={other.get(name)}, rank 0 with "
                f"{name}={first.get(name)}; build it alike on all ranks"
                for rank, other in enumerate(others, start=1)
                for name in first | other
                if first.get(name) != other.get(name)
            )
        )
    return [each[2:] for each in gathered]
