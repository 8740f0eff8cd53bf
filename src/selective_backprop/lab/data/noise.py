"""Label noise: wrong labels on purpose, to see what a strategy makes of them."""

from dataclasses import dataclass, replace

import torch

import selective_backprop as sb
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.random_bits import below, key_of, random_bits

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
        if not 0.0 <= self.rate < 1.0:
            raise sb.ConfigurationError(
                f"noise of rate={self.rate}: the share of the training labels to flip must be in "
                "[0, 1); 1/5 flips a fifth"
            )

    def __call__(self, data: ImageData) -> ImageData:
        """Return the data with flipped labels, and the clean ones in `train_clean_labels`.

        Limit the data first. Flips made before are undone: the clean labels are flipped.

        Raises:
            ConfigurationError: if there is no other class to flip a label to.
        """
        clean = data.train_labels if data.train_clean_labels is None else data.train_clean_labels
        count = round(self.rate * len(clean))
        if count and data.classes < 2:
            raise sb.ConfigurationError(
                f"{data.name} has {data.classes} class, so no label can be flipped to another. "
                "Use rate=0, or data of several classes."
            )
        places, steps = random_bits(key_of(_FLIPS, self.seed), torch.arange(len(clean)), draws=2)
        chosen = places.argsort(stable=True)[:count]
        labels = clean.clone()
        # From 1 to classes - 1 further on, which is never once around.
        further = 1 + below(steps[chosen], max(1, data.classes - 1))
        labels[chosen] = (clean[chosen] + further) % data.classes
        return replace(data, train_labels=labels, train_clean_labels=clean)
