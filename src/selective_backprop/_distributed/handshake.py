"""Ranks make sure that they were built alike before anything is shared."""

import hashlib
import json
from collections.abc import Mapping

import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._distributed.group import Group


def compare(group: Group, built: Mapping[str, object], numbers: list[int]) -> list[list[int]]:
    """Return each rank's numbers, after checking that all ranks were built alike.

    Args:
        group: the ranks.
        built: what this rank was built with; values are compared by what they print.
        numbers: further numbers of this rank; equally many on each rank.

    Raises:
        ConfigurationError: if ranks were built differently; the difference is named.
        LoaderError: if a rank does not answer.
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
        raise ConfigurationError(_describe([json.loads(text) for text in texts]))
    return [each[2:] for each in gathered]


def _describe(built: list[dict[str, str]]) -> str:
    return next(
        f"rank {rank} was built with {name}={other.get(name)}, rank 0 with "
        f"{name}={built[0].get(name)}; build it alike on all ranks"
        for rank, other in enumerate(built)
        for name in {**built[0], **other}
        if built[0].get(name) != other.get(name)
    )
