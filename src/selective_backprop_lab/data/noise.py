"""Label noise: make labels wrong on purpose, to see how a strategy deals with them."""

from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.random_bits import below, key_of, random_bits
from selective_backprop_lab.shapes import Int64

# A separate random stream, so that flips are independent of augmentation and of the order.
_FLIPS = int.from_bytes(b"flips")


class NoiseKind(StrEnum):
    """Which class a wrong label names."""

    UNIFORM = "uniform"  # any other class, all equally likely
    # The next class, or the first after the last, so a class is always mistaken for the same one.
    # Pair flipping: Han et al. 2018, "Co-teaching", arXiv:1804.06872.
    NEIGHBOUR = "neighbour"
    # A class that looks similar, as when people make mistakes: a random example of the right class
    # is drawn, and the wrong label is the other class whose mean is nearest to this example.
    ALIKE = "alike"


@dataclass(frozen=True)
class LabelNoise:
    """Replace exactly `round(rate * examples)` training labels by wrong ones.

    Which labels, and by what, depends only on the seed and the example's index. All kinds replace
    the same labels, and a larger rate replaces those of a smaller one and more.
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

        Limit the data first. Earlier flips are undone, because the clean labels are flipped.
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
        right, drawn, labels = clean[chosen], steps[chosen], clean.clone()
        if self.kind is NoiseKind.UNIFORM:
            # 1 to classes - 1 steps further, which never returns to the same class.
            labels[chosen] = (right + 1 + below(drawn, max(1, data.classes - 1))) % data.classes
        elif self.kind is NoiseKind.NEIGHBOUR:
            labels[chosen] = (right + 1) % data.classes
        elif count:
            labels[chosen] = _alike(data, clean, right, drawn)
        return replace(data, train_labels=labels, train_clean_labels=clean)


def _alike(
    data: LabData,
    clean: Int64[Tensor, " example"],
    of: Int64[Tensor, " flip"],
    bits: Int64[Tensor, " flip"],
) -> Int64[Tensor, " flip"]:
    """Return another class for each class of `of`, as often as examples resemble that one."""
    shape = (1, -1, *[1] * (data.train_inputs.ndim - 2))
    scale = torch.tensor(data.std, dtype=torch.float64).view(shape) * data.unit
    inputs = (data.train_inputs.double() / scale).flatten(1)
    sizes = clean.bincount(minlength=data.classes)
    sums = inputs.new_zeros(data.classes, inputs.shape[1]).index_add_(0, clean, inputs)
    means = sums / sizes[:, None]  # NaN for a class without examples; it is nearest to nothing
    far = torch.cdist(inputs, means).nan_to_num(torch.inf).scatter_(1, clean[:, None], torch.inf)
    taken_for = torch.zeros(data.classes, data.classes, dtype=torch.float64)
    taken_for.index_put_((clean, far.argmin(1)), taken_for.new_ones(()), accumulate=True)
    reached = taken_for.cumsum(1) / taken_for.sum(1, keepdim=True)
    return torch.searchsorted(reached[of], (bits / 2.0**32)[:, None], right=True)[:, 0]
