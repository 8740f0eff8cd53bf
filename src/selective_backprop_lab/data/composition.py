"""Give a training set skewed classes, copies, near-copies and wrong labels, as raw data have."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.datasets import LabData, statistics_of
from selective_backprop_lab.data.random_bits import below, drawn_order, key_of, random_bits
from selective_backprop_lab.shapes import Float64, Int64, UInt8

# Each name stands for a separate random stream.
_CLASSES, _ORDER, _COPIES, _PLACES, _SHIFTS, _LIGHT, _FLIPS = (
    int.from_bytes(name)
    for name in (b"class", b"order", b"copy", b"place", b"shift", b"light", b"flips")
)
_AT_ONCE = 4096  # images that are shifted together; for CIFAR these are 50 MB of numbers
_DARKEST, _BRIGHTEST = 205, 307  # divided by 256: levels are multiplied by 0.8 to 1.2
Labels = Int64[Tensor, " example"]
Pictures = UInt8[Tensor, "place channel height width"]


class NoiseKind(StrEnum):
    """Which class a wrong label names."""

    UNIFORM = "uniform"  # any other class, all equally likely
    # The next class, or the first after the last, so a class is always mistaken for the same one.
    # Pair flipping: Han et al. 2018, "Co-teaching", arXiv:1804.06872.
    NEIGHBOUR = "neighbour"
    # A class that looks similar, as when people make mistakes: a random example of the right class
    # is drawn, and the wrong label is the other class whose mean is nearest to this example.
    ALIKE = "alike"


@dataclass(frozen=True, kw_only=True)
class Composition:
    """How the training examples of a data set are changed; the test set stays as it is.

    A training example is a *place* that shows one of the data set's examples, maybe as others do.
    Which place shows what depends only on the settings and `seed`, on every platform.
    """

    # The k-th largest class gets places in proportion to `k ** -skew`; 0 leaves the data set's
    # shares. The order of the classes is drawn at random. At least 0.
    skew: float = 0.0
    # One class, drawn at random, gets this share of the places, in [0, 1), and the other classes
    # get equal parts of the rest. 0 leaves the data set's shares.
    frequent: float = 0.0
    # A place of a class shows its k-th example, in a random order, with a probability proportional
    # to `k ** -copies`. 1 is Zipf's law; 0 shows each example at most once. At least 0.
    copies: float = 0.0
    # The first place that shows an example shows it unchanged. Others shift it by up to this many
    # pixels, and change its brightness by up to a fifth. 0 makes exact copies.
    near_copies: int = 0
    # The number of places. None is the number of examples in the data set or, with skew or a
    # frequent class and without copies, as many as the shares allow.
    places: int | None = None
    # The share of the places with a wrong label, in [0, 1): exactly so many, rounded. All kinds
    # replace the same labels, and a larger share replaces those of a smaller one and more.
    noise: float = 0.0
    noise_kind: NoiseKind = NoiseKind.UNIFORM
    seed: int = 0

    def __post_init__(self) -> None:
        exponent = "the exponent must be at least 0, and finite; 0 changes nothing, 1 is Zipf's law"
        share = "the share of the training labels to flip must be in [0, 1); 1/5 flips a fifth"
        none, right = "no copies to shift; give copies=1", "no labels are wrong; give noise=1/5"
        alone = "one class's share must be in [0, 1), such as 0.9, and not be given with skew"
        for name, fits, wanted in (
            ("skew", 0.0 <= self.skew < math.inf, exponent),
            ("copies", 0.0 <= self.copies < math.inf, exponent),
            ("frequent", 0.0 <= self.frequent < 1.0 and not (self.frequent and self.skew), alone),
            ("near_copies", self.copies or not self.near_copies, none),
            ("noise_kind", self.noise or self.noise_kind is NoiseKind.UNIFORM, right),
            ("places", self.places is None or self.places >= 1, "at least 1 is needed"),
            ("noise", 0.0 <= self.noise < 1.0, share),
        ):
            if not fits:
                raise sb.ConfigurationError(f"{name}={getattr(self, name)}: {wanted}")
        Augmentation(shift=self.near_copies)

    def __call__(self, data: LabData) -> LabData:
        """Return the changed data, with the right labels in `train_clean_labels`."""
        if data.is_text:
            if self != AS_PUBLISHED:
                raise sb.ConfigurationError(
                    f"{data.name} is text, so skew, copies, places and noise cannot be set; leave "
                    "these options out"
                )
            return data
        if self.near_copies and not data.is_images:
            raise sb.ConfigurationError(
                f"near_copies={self.near_copies}: {data.name} has no images to shift; leave it out"
            )
        if self.skew or self.frequent or self.copies or self.places is not None:
            rows = self.rows(data.train_labels, data.class_names)
            images = data.train_inputs[rows]
            if self.near_copies:
                images = self._moved(images, rows)
            made = {"train_inputs": images, "train_labels": data.train_labels[rows]}
            mean, std = statistics_of(images, data.unit, data.standardised)
            data = replace(data, **made, train_sources=rows, mean=mean, std=std)
        return self._flipped(data)

    def _flipped(self, data: LabData) -> LabData:
        clean = data.train_labels if data.train_clean_labels is None else data.train_clean_labels
        count = round(self.noise * len(clean))
        if count and data.classes < 2:
            raise sb.ConfigurationError(
                f"{data.name} has {data.classes} class, so no label can be flipped to another. "
                "Use noise=0, or data of several classes."
            )
        places, steps = random_bits(key_of(_FLIPS, self.seed), torch.arange(len(clean)), draws=2)
        chosen = places.argsort(stable=True)[:count]
        right, drawn, labels = clean[chosen], steps[chosen], clean.clone()
        if self.noise_kind is NoiseKind.UNIFORM:
            # 1 to classes - 1 steps further, which never returns to the same class.
            labels[chosen] = (right + 1 + below(drawn, max(1, data.classes - 1))) % data.classes
        elif self.noise_kind is NoiseKind.NEIGHBOUR:
            labels[chosen] = (right + 1) % data.classes
        elif count:
            labels[chosen] = _alike(data, clean, right, drawn)
        return replace(data, train_labels=labels, train_clean_labels=clean)

    def rows(self, labels: Labels, class_names: tuple[str, ...]) -> Int64[Tensor, " place"]:
        """Return which example each place shows, in random order."""
        order = drawn_order(key_of(_ORDER, self.seed), len(labels))
        shown = [
            self._shown(order[labels[order] == label], label, count)
            for label, count in enumerate(self._counts(labels, class_names))
        ]
        rows = torch.cat(shown)
        return rows[drawn_order(key_of(_PLACES, self.seed), len(rows))]

    def _counts(self, labels: Labels, class_names: tuple[str, ...]) -> list[int]:
        there = labels.bincount(minlength=len(class_names)).double()
        weights, allowed = there, len(labels)
        if self.skew or self.frequent:
            ranks = drawn_order(key_of(_CLASSES, self.seed), len(there)).argsort()
            weights = (ranks + 1).double() ** -self.skew
            if self.frequent:
                rest = (1.0 - self.frequent) / max(1, len(there) - 1)
                weights = torch.where(ranks == 0, self.frequent, rest).double()
            if not self.copies:
                allowed = int((there / weights).min() * weights.sum())
        places = allowed if self.places is None else self.places
        bounds = (weights.cumsum(0) * (places / float(weights.sum()))).round()
        counts = bounds.diff(prepend=bounds.new_zeros(1))
        if self.places is None and not self.copies:
            counts = counts.minimum(there)  # rounding may ask for one too many
        for name, count, most in zip(class_names, counts.tolist(), there.tolist(), strict=True):
            if not count and (self.skew or self.frequent or most):
                option = "frequent" if self.frequent else "skew"
                raise sb.ConfigurationError(
                    f"{option}={getattr(self, option)} leaves no place for the class {name!r} "
                    f"among {places}; give more places, or less {option}"
                )
            if count and (not most or (count > most and not self.copies)):
                raise sb.ConfigurationError(
                    f"the class {name!r} has {most:.0f} examples for {count:.0f} places; give "
                    "fewer places, or copies=1"
                )
        return counts.long().tolist()

    def _shown(self, members: Tensor, label: int, count: int) -> Int64[Tensor, " place"]:
        if not self.copies:
            return members[:count]
        bits = random_bits(key_of(_COPIES, self.seed, label), torch.arange(count), draws=1)[0]
        reached = zipf(len(members), self.copies)
        return members[torch.searchsorted(reached, bits / 2.0**32, right=True)]

    def _moved(self, images: Pictures, rows: Int64[Tensor, " place"]) -> Pictures:
        """Shift images, and change their brightness, except the first of each example, in place."""
        again = torch.ones(len(rows), dtype=torch.bool)
        again[torch.from_numpy(np.unique(rows.numpy(), return_index=True)[1])] = False
        shift = Augmentation(shift=self.near_copies)
        seed = key_of(_SHIFTS, self.seed)
        for places in again.nonzero().flatten().split(_AT_ONCE):
            moved = shift(images[places].float(), places, seed=seed, epoch=0).int()
            bits = random_bits(key_of(_LIGHT, self.seed), places, draws=1)[0]
            light = (_DARKEST + below(bits, _BRIGHTEST + 1 - _DARKEST)).int()[:, None, None, None]
            # 256 stands for a factor of 1, and 128 rounds. Integers give the same on all platforms.
            images[places] = ((moved * light + 128) >> 8).clamp(max=255).to(torch.uint8)
        return images

    def config(self) -> dict[str, Any]:
        """Return what a record holds: `noise` or None, and all settings that are not default."""
        usual = vars(AS_PUBLISHED)
        chosen = {name: value for name, value in vars(self).items() if value != usual[name]}
        noise = chosen.pop("noise", None)
        return {"noise": noise, **({"composition": chosen} if chosen else {})}


AS_PUBLISHED = Composition()


def zipf(count: int, exponent: float) -> Float64[Tensor, " rank"]:
    """Return the probability of drawing each rank or a smaller one by Zipf's law."""
    reached = (torch.arange(1, count + 1).double() ** -exponent).cumsum(0)
    return reached / reached[-1]


def _alike(data: LabData, clean: Labels, of: Tensor, bits: Tensor) -> Int64[Tensor, " flip"]:
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
