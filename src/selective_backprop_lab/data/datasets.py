"""Find data by name, and hold them in memory with the statistics that scaling needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data import generated, source_code
from selective_backprop_lab.data import images as published
from selective_backprop_lab.data.own import read_own_splits
from selective_backprop_lab.data.splits import (
    Splits,
    held_out,
    limited,
    merged,
    of_classes,
    redrawn,
)
from selective_backprop_lab.data.tables import read_adult, read_kdd99, read_shuttle
from selective_backprop_lab.names import find_name, is_import_path
from selective_backprop_lab.shapes import Bool, Int64, Num, UInt8

# 4,096 CIFAR images are 12 MB; their histogram needs eight times as much.
_IMAGES_AT_ONCE = 4096
_PORTRAIT_SIDE = 32  # pixels; a larger image is shown smaller
_FULL_INK = 16  # scikit-learn's levels count the inked pixels in a block of 4 x 4


@dataclass(frozen=True, eq=False)
class LabData:
    """A data set: its `Splits`, with a name and the training inputs' statistics."""

    name: str
    train_inputs: Num[Tensor, "train ..."]
    train_labels: Int64[Tensor, " train *token"]
    test_inputs: Num[Tensor, "test ..."]
    test_labels: Int64[Tensor, " test *token"]
    class_names: tuple[str, ...]
    unit: float
    standardised: bool
    # Of each channel or feature, divided by `unit`; empty for tokens, which are not scaled.
    mean: tuple[float, ...]
    std: tuple[float, ...]  # 1 for a constant channel or feature, so that dividing is allowed
    train_clean_labels: Int64[Tensor, " train *token"] | None = None  # before `noise` flipped some
    train_sources: Int64[Tensor, " train"] | None = None  # equal for copies; None without any

    @classmethod
    def of(cls, name: str, splits: Splits) -> "LabData":
        """Return the splits that a reader returned, with their statistics."""
        train, test = splits.train_inputs, splits.test_inputs
        if train.dtype == torch.uint8:
            splits = splits._replace(unit=255.0)
        elif splits.unit == 1.0 and splits.standardised and train.is_floating_point():
            # In float64, because float32 cannot tell 1,700,000,001 from 1,700,000,002.
            mean, std = torch.tensor(statistics_of(train, 1.0, True), dtype=torch.float64)
            train, test = (((part.double() - mean) / std).float() for part in (train, test))
            splits = splits._replace(train_inputs=train, test_inputs=test)
        return cls(name, *splits[:7], *statistics_of(train, splits.unit, splits.standardised))

    @property
    def flipped(self) -> Bool[Tensor, " train *token"]:
        """Which training labels were made wrong on purpose."""
        if self.train_clean_labels is None:
            return torch.zeros_like(self.train_labels, dtype=torch.bool)
        return self.train_labels != self.train_clean_labels

    def within(self, rows: Int64[Tensor, " row"]) -> "LabData":
        """Return the data with some of the training examples; the statistics stay those of all."""
        parts = ("train_inputs", "train_labels", "train_clean_labels", "train_sources")
        known = {name: part for name in parts if (part := getattr(self, name)) is not None}
        return replace(self, **{name: part[rows] for name, part in known.items()})

    @property
    def is_images(self) -> bool:
        """Whether inputs are images, of channels, height and width."""
        return self.train_inputs.ndim == 4

    @property
    def is_text(self) -> bool:
        """Whether each token has a label, so examples have no classes."""
        return self.train_labels.ndim > 1

    @property
    def channels(self) -> int:
        """The number of channels of an image, of features, or of tokens in a window."""
        return self.train_inputs.shape[1]

    @property
    def image_size(self) -> int:
        """Height and width of the images in pixels; all are square. 1 if there are no images."""
        return self.train_inputs.shape[2] if self.is_images else 1

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)


def thumbnails(data: LabData, indices: np.ndarray) -> UInt8[np.ndarray, "portrait h w channel"]:
    """Return images of some training examples, in grey or colour, of at most 32 pixels a side."""
    images = data.train_inputs[torch.as_tensor(indices, device=data.train_inputs.device)].cpu()
    if data.channels not in (1, 3):
        images = images[:, :1]
    if data.image_size > _PORTRAIT_SIDE:
        smaller = torch.nn.functional.adaptive_avg_pool2d(images.float(), _PORTRAIT_SIDE)
        images = smaller.round().to(torch.uint8)
    return images.permute(0, 2, 3, 1).numpy()


def read_digits() -> Splits:
    """Return 1,797 digits of 8 x 8 pixels, 1,437 to train on and 360 to test on.

    Every fifth, sorted by class, is a test example. The same people wrote digits of both splits.
    Source:
        Alpaydin and Kaynak 1998, UCI Machine Learning Repository (test set), doi:10.24432/C50P49.
    """
    from sklearn.datasets import load_digits  # slow

    digits = load_digits()
    levels = np.rint(digits.images * (255 / _FULL_INK)).astype(np.uint8)
    images = torch.from_numpy(levels).unsqueeze(1)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    testing = torch.zeros(len(labels), dtype=torch.bool)
    testing[labels.argsort(stable=True)[::5]] = True
    names = tuple(str(name) for name in digits.target_names)
    return Splits(images[~testing], labels[~testing], images[testing], labels[testing], names)


_THREE = (0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
_KINDS = (0, 0, 1, 1, 1, 1, 1, 1, 0, 0)  # of CIFAR-10's classes: vehicles and animals
# The publisher's 20 groups of CIFAR-100's classes, five in each; not every copy holds them.
_COARSE = (
    "aquatic mammals", "fish", "flowers", "food containers", "fruit and vegetables",
    "household electrical devices", "household furniture", "insects", "large carnivores",
    "large man-made outdoor things", "large natural outdoor scenes",
    "large omnivores and herbivores", "medium-sized mammals", "non-insect invertebrates",
    "people", "reptiles", "small mammals", "trees", "vehicles 1", "vehicles 2",
)  # fmt: skip
_GROUPS = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7,
    6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10,
    16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16,
    12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)  # fmt: skip


_read_mnist = partial(published.read_idx_splits, published.MNIST)
_read_cifar10 = partial(published.read_cifar_splits, published.CIFAR10)
_read_cifar100 = partial(published.read_cifar_splits, published.CIFAR100)

DATASETS: Mapping[str, Callable[[Path | None], Splits]] = {
    "digits": lambda root: read_digits(),  # they come with scikit-learn
    "digits-three": lambda root: merged(read_digits(), _THREE, ("another digit", "three")),
    "mnist": _read_mnist,
    "mnist-parity": lambda root: merged(_read_mnist(root), (0, 1) * 5, ("even", "odd")),
    "fashion-mnist": partial(published.read_idx_splits, published.FASHION_MNIST),
    "cifar10": _read_cifar10,
    "cifar10-animals": lambda root: merged(_read_cifar10(root), _KINDS, ("vehicle", "animal")),
    "cifar100": _read_cifar100,
    "cifar100-coarse": lambda root: merged(_read_cifar100(root), _GROUPS, _COARSE),
    "svhn": partial(published.read_svhn_splits, published.SVHN),
    "svhn-extra": partial(published.read_svhn_splits, published.SVHN_EXTRA),
    "adult": read_adult,
    "kdd99": read_kdd99,
    "shuttle": read_shuttle,
    "mnist1d": lambda root: generated.make_mnist1d(),
    "breast-cancer": lambda root: generated.read_breast_cancer(),
    "table": lambda root: generated.make_table(),
    "clicks": lambda root: generated.make_clicks(),
    "source-code": lambda root: source_code.read_source_code(),  # it comes with Python
    "source-bytes": lambda root: source_code.read_source_bytes(),
    "help-bytes": lambda root: source_code.read_help_bytes(),
}

TEXTS = frozenset({"source-bytes", "help-bytes"})  # whose error is measured in bits per byte


def load(
    name: str,
    *,
    root: Path | None = None,
    limit: int | None = None,
    redraw: int | None = None,
    hold_out: bool = False,
) -> LabData:
    """Load a data set by name: a key of `DATASETS`, or `package.module:function` of the user's own.

    `mnist:5-9` is `mnist` with only its classes 5 to 9, numbered from 0. Published data are read
    from `root`, in their publishers' or torchvision's layout. `limited`, `redrawn` and `held_out`
    say what the other arguments do.
    """
    name = data_name(name)
    splits = read(name, root)
    if redraw is not None:
        splits = redrawn(splits, redraw)
    if hold_out:
        splits = held_out(splits)
    if limit is not None:
        splits = limited(splits, limit)
    return LabData.of(name, splits)


@lru_cache(maxsize=2)  # for a run and for its pretraining
def read(name: str, root: Path | None) -> Splits:
    """Read a data set, or the classes that a name asks for."""
    if is_own(name):
        return read_own_splits(name)
    base = base_name(name)
    try:
        splits = DATASETS[base](root)
    except OSError as error:
        raise sb.DataError(f"{name} cannot be read: {error}") from error
    return splits if base == name else of_classes(splits, name.removeprefix(f"{base}:"))


def data_name(name: str) -> str:
    """Return a data set's name as in `DATASETS`, or an import path unchanged."""
    if is_own(name):
        return name
    base, more = base_name(name), ", and package.module:function for one of your own"
    return find_name("data set", base, DATASETS, more=more) + name.removeprefix(base)


def is_own(name: str) -> bool:
    """Whether a name is the import path of a function that returns data of the user's own."""
    return is_import_path(name) and base_name(name) not in DATASETS


def base_name(name: str) -> str:
    """Return the name of the whole data set: `mnist` for `mnist:5-9`."""
    return name.partition(":")[0]


def statistics_of(
    inputs: Num[Tensor, "example ..."], unit: float, standardised: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and deviation of each channel or feature; 0 and 1 if not standardised."""
    if inputs.dtype == torch.uint8:
        return channel_statistics(inputs)
    if not inputs.is_floating_point():
        return (), ()
    if not standardised:
        return (0.0,) * inputs.shape[1], (1.0,) * inputs.shape[1]
    features = inputs.double() / unit
    constant = (inputs == inputs[:1]).all(0)
    # The population's deviation, as for images.
    std = features.std(0, correction=0).masked_fill(constant, 1.0)
    return tuple(features.mean(0).tolist()), tuple(std.tolist())


def channel_statistics(
    images: UInt8[Tensor, "example channel height width"],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each channel's mean and the population's deviation, as fractions of the full level."""
    counts = torch.zeros(images.shape[1], 256, dtype=torch.float64)
    for part in images.split(_IMAGES_AT_ONCE):
        counts += torch.stack([each.flatten().bincount(minlength=256) for each in part.unbind(1)])
    levels = torch.arange(256, dtype=torch.float64) / 255
    total = counts.sum(dim=1)
    mean = (levels * counts).sum(dim=1) / total
    variance = ((levels - mean.unsqueeze(1)).square() * counts).sum(dim=1) / total
    constant = (counts > 0).sum(dim=1) == 1
    std = variance.sqrt().masked_fill(constant, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
