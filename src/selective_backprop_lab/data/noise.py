"""Label noise: wrong labels on purpose, to see what a strategy makes of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.random_bits import below, key_of, random_bits
from selective_backprop_lab.shapes import Int64

# Names a stream of its own: flips bear no relation to augmentation, or to a limited set's order.
_FLIPS = int.from_bytes(b"flips")


@dataclass(frozen=True)
class UniformFlip:
    """Replace a share of the training labels by wrong ones.

    Exactly `round(rate * examples)` labels are replaced, each by one of the other classes, all of
    them equally likely. Which labels, and by what, depends on the seed and the example's index
    alone: every strategy and every seed of a comparison gets the same ones, and a smaller rate's
    flips are among a larger one's. The test set stays as it is.

    Raises:
        ConfigurationError: if `rate` is not in [0, 1).
    """

    rate: float
    seed: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def __call__(self, data: LabData) -> LabData:
        """Return the data with flipped labels, and the clean ones in `train_clean_labels`.

        Limit the data first. Flips made before are undone: the clean labels are flipped.

        Raises:
            ConfigurationError: if there is no other class to flip a label to.
        """
        # From 1 to classes - 1 further on, which is never once around.
        others = max(1, data.classes - 1)
        return _flipped(data, self.rate, self.seed, lambda bits: 1 + below(bits, others))


@dataclass(frozen=True)
class NeighbourFlip:
    """Replace a share of the training labels, each by the class after it; the last by the first.

    The same labels are replaced as by `UniformFlip` of the same rate and seed: the two differ only
    in what they put there. A class is so always taken for the same other one.

    Raises:
        ConfigurationError: if `rate` is not in [0, 1).

    Source:
        Pair flipping: Han et al. 2018, "Co-teaching", arXiv:1804.06872.
    """

    rate: float
    seed: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def __call__(self, data: LabData) -> LabData:
        """Return the data with flipped labels, as `UniformFlip` does."""
        return _flipped(data, self.rate, self.seed, torch.ones_like)


class NoiseKind(StrEnum):
    """Which class a wrong label names: any other, or the one after its own."""

    UNIFORM = "uniform"
    NEIGHBOUR = "neighbour"


NOISE: Mapping[NoiseKind, Callable[[float, int], UniformFlip | NeighbourFlip]] = {
    NoiseKind.UNIFORM: UniformFlip,
    NoiseKind.NEIGHBOUR: NeighbourFlip,
}


def _check_rate(rate: float) -> None:
    if not 0.0 <= rate < 1.0:
        raise sb.ConfigurationError(
            f"noise of rate={rate}: the share of the training labels to flip must be in "
            "[0, 1); 1/5 flips a fifth"
        )


def _flipped(
    data: LabData,
    rate: float,
    seed: int,
    further: Callable[[Int64[Tensor, " flip"]], Int64[Tensor, " flip"]],
) -> LabData:
    """Move a share of the labels further on by as many classes as random bits say."""
    clean = data.train_labels if data.train_clean_labels is None else data.train_clean_labels
    count = round(rate * len(clean))
    if count and data.classes < 2:
        raise sb.ConfigurationError(
            f"{data.name} has {data.classes} class, so no label can be flipped to another. "
            "Use rate=0, or data of several classes."
        )
    places, steps = random_bits(key_of(_FLIPS, seed), torch.arange(len(clean)), draws=2)
    chosen = places.argsort(stable=True)[:count]
    labels = clean.clone()
    labels[chosen] = (clean[chosen] + further(steps[chosen])) % data.classes
    return replace(data, train_labels=labels, train_clean_labels=clean)
