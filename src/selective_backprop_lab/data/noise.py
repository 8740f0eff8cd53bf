"""Label noise: wrong labels on purpose, to see what a strategy makes of them."""

from dataclasses import dataclass, replace
from enum import StrEnum

import torch

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.random_bits import below, key_of, random_bits

# Names a stream of its own: flips bear no relation to augmentation, or to a limited set's order.
_FLIPS = int.from_bytes(b"flips")


class NoiseKind(StrEnum):
    """Which class a wrong label names."""

    UNIFORM = "uniform"  # any other, all of them equally likely
    # The one after its own, and the first after the last: a class is always taken for the same
    # other one. Pair flipping: Han et al. 2018, "Co-teaching", arXiv:1804.06872.
    NEIGHBOUR = "neighbour"


@dataclass(frozen=True)
class LabelNoise:
    """Replace a share of the training labels by wrong ones.

    Exactly `round(rate * examples)` labels are replaced. Which labels, and by what, depends on the
    seed and the example's index alone: every strategy and every seed of a comparison gets the same
    ones, both kinds replace the same labels, and a smaller rate's are among a larger one's. The
    test set stays as it is.

    Raises:
        ConfigurationError: if `rate` is not in [0, 1).
    """

    rate: float
    seed: int = 0
    kind: NoiseKind = NoiseKind.UNIFORM

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate < 1.0:
            raise sb.ConfigurationError(
                f"noise of rate={self.rate}: the share of the training labels to flip must be in "
                "[0, 1); 1/5 flips a fifth"
            )

    def __call__(self, data: LabData) -> LabData:
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
        # From 1 to classes - 1 further on, which is never once around.
        further = 1 + below(steps[chosen], max(1, data.classes - 1))
        if self.kind is NoiseKind.NEIGHBOUR:
            further = torch.ones_like(further)
        labels = clean.clone()
        labels[chosen] = (clean[chosen] + further) % data.classes
        return replace(data, train_labels=labels, train_clean_labels=clean)
