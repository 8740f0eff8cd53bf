"""Image data by name, held in memory as bytes, with the statistics that normalising needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

import selective_backprop as sb
from selective_backprop.lab.data.cifar import CIFAR10, CIFAR100, read_cifar_splits
from selective_backprop.lab.data.digits import read_digits
from selective_backprop.lab.data.hub import HUB, read_hub_splits
from selective_backprop.lab.data.idx import FASHION_MNIST, MNIST, read_idx_splits
from selective_backprop.lab.data.splits import Splits, limited
from selective_backprop.lab.data.svhn import SVHN, SVHN_EXTRA, read_svhn_splits

# 4,096 CIFAR images are 12 MB; a histogram of them needs eight times that.
_IMAGES_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class ImageData:
    """A data set of images: two splits, the classes, and the training images' statistics.

    Attributes:
        name: the name it was loaded by.
        train_images: grey levels 0 to 255.
        train_labels: class numbers from 0, as they are trained on.
        test_images: grey levels 0 to 255.
        test_labels: class numbers from 0.
        class_names: one name per class, in the order of the labels.
        mean: per channel, of the training images' levels divided by 255.
        std: per channel, of the same; 1 for a channel that never changes, so that dividing by
            it is always allowed.
        train_clean_labels: what the training labels were before `noise` flipped some of them;
            None for data as it was read.
    """

    name: str
    train_images: UInt8[Tensor, "train channel height width"]
    train_labels: Int64[Tensor, " train"]
    test_images: UInt8[Tensor, "test channel height width"]
    test_labels: Int64[Tensor, " test"]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train_clean_labels: Int64[Tensor, " train"] | None = None

    @property
    def flipped(self) -> Bool[Tensor, " train"]:
        """Which training labels are wrong on purpose."""
        if self.train_clean_labels is None:
            return torch.zeros_like(self.train_labels, dtype=torch.bool)
        return self.train_labels != self.train_clean_labels

    @property
    def channels(self) -> int:
        """The number of channels of an image: 1 for grey, 3 for colour."""
        return self.train_images.shape[1]

    @property
    def image_size(self) -> int:
        """Height and width of an image, in pixels; all are square."""
        return self.train_images.shape[2]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)


DATASETS: Mapping[str, Callable[[Path | None], Splits]] = {
    "digits": lambda root: read_digits(),  # which come with scikit-learn
    "mnist": partial(read_idx_splits, MNIST),
    "fashion-mnist": partial(read_idx_splits, FASHION_MNIST),
    "cifar10": partial(read_cifar_splits, CIFAR10),
    "cifar100": partial(read_cifar_splits, CIFAR100),
    "svhn": partial(read_svhn_splits, SVHN),
    "svhn-extra": partial(read_svhn_splits, SVHN_EXTRA),
}


def load(name: str, *, root: Path | None = None, limit: int | None = None) -> ImageData:
    """Load a data set by name.

    `digits` is embedded in scikit-learn. The others are read from disk in their publishers'
    layouts, which torchvision's root folder also has; CIFAR's may be pickled or binary. Nothing is
    fetched. Every file is checked: magic numbers, dimensions, exact lengths, the range of the
    labels. `hub:NAME` is one of the Hugging Face hub, which the package `datasets` fetches, where
    it is installed.

    Args:
        name: a key of `DATASETS`, or `hub:NAME`, or `hub:NAME:CONFIGURATION`.
        root: the folder that holds the data set's files, or one that holds the publisher's or
            torchvision's folder of them. `digits` needs none. For the hub, the folder in which
            fetched files are kept; None for the package's own.
        limit: how many training examples to keep; None keeps all. They are the first of one
            fixed, stratified order: each class keeps its share (of equally large ones to within one
            example), a smaller limit's examples are a prefix of a larger one's, and every seed
            gets the same.

    Raises:
        ConfigurationError: if the name is unknown, the limit out of range, or `datasets` is needed
            and not installed.
        DataError: if a folder or file is missing, damaged, or not what the name says.
    """
    if name.startswith(HUB):
        read = partial(read_hub_splits, name)
    elif name in DATASETS:
        read = DATASETS[name]
    else:
        raise sb.ConfigurationError(
            f"there is no data set {name!r}. Choose one of {', '.join(DATASETS)}, or {HUB}NAME for "
            "one of the Hugging Face hub"
        )
    try:
        splits = read(root)
    except OSError as error:
        raise sb.DataError(f"{name} cannot be read: {error}") from error
    if limit is not None:
        splits = limited(splits, limit)
    return ImageData(name, *splits, *channel_statistics(splits.train_images))


def channel_statistics(
    images: UInt8[Tensor, "example channel height width"],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of each channel, in units of the full level.

    Levels are counted, so the result is exact to float64 and does not depend on threads, and
    memory stays near 100 MB however many images there are. The deviation is the population's, or 1
    for a channel that never changes.
    """
    counts = torch.zeros(images.shape[1], 256, dtype=torch.float64)
    for part in images.split(_IMAGES_AT_ONCE):
        for channel in range(images.shape[1]):
            counts[channel] += torch.bincount(part[:, channel].reshape(-1), minlength=256)
    levels = torch.arange(256, dtype=torch.float64) / 255
    total = counts.sum(dim=1)
    mean = (levels * counts).sum(dim=1) / total
    variance = ((levels - mean.unsqueeze(1)).square() * counts).sum(dim=1) / total
    constant = (counts > 0).sum(dim=1) == 1
    std = variance.sqrt().masked_fill(constant, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
