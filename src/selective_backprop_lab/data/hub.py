"""Read image data by its name on the Hugging Face hub, through the package `datasets`."""

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import selective_backprop as sb
from selective_backprop_lab.data.splits import Part, Splits

HUB = "hub:"  # what a name begins with that means a data set of the hub

_GREY, _COLOURED = ("1", "L"), ("P", "RGB")  # kinds of pictures that lose nothing but a palette


def read_hub_splits(name: str, root: Path | None) -> Splits:
    """Return a data set of the hub, all of it in memory.

    Of its columns, the one of pictures and the one of most classes are taken. It is tested on its
    test split, or its validation split where it has none.

    Raises:
        ConfigurationError: if the package is not installed, or no name follows the colon.
        DataError: if the data set cannot be fetched, has no such splits or columns, or its images
            are not all square, of one size, and of 8 bits a channel.
    """
    path, _, configuration = name.removeprefix(HUB).partition(":")
    # A path is no name either: a record from elsewhere must not choose a folder of this machine.
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", path):
        raise sb.ConfigurationError(
            f"{name!r} names no data set: write {HUB}NAME, such as {HUB}uoft-cs/cifar10"
        )
    try:
        package = importlib.import_module("datasets")
    except ImportError as error:
        raise sb.ConfigurationError(
            f"{name} is read with the package datasets, which cannot be imported: {error}. Install "
            "it with pip install 'selective-backprop[hub]', or name a data set on your disk"
        ) from error
    try:
        found = package.load_dataset(
            path, configuration or None, cache_dir=None if root is None else str(root)
        )
    except Exception as error:
        # No network, no such name, a configuration to choose: the package raises nearly anything.
        raise sb.DataError(
            f"{name} cannot be had from the hub: {str(error).rstrip('.')}. Take its name "
            f"from its page, https://huggingface.co/datasets/NAME; {HUB}NAME:CONFIGURATION chooses "
            "among several configurations"
        ) from error
    train, test = _split(found, ("train",), name), _split(found, ("test", "validation"), name)
    pictures = _column(train, package.Image, "pictures", name)
    classes = _column(train, package.ClassLabel, "classes", name)
    names = tuple(train.features[classes].names)
    read = [_read(each, pictures, classes, len(names), name) for each in (train, test)]
    (train_inputs, train_labels), (test_inputs, test_labels) = read
    if train_inputs.shape[1:] != test_inputs.shape[1:]:
        raise sb.DataError(
            f"{name} has images of {tuple(train_inputs.shape[1:])} to train on and of "
            f"{tuple(test_inputs.shape[1:])} to test on, but one size is needed"
        )
    return Splits(train_inputs, train_labels, test_inputs, test_labels, names)


def _split(found: Any, wanted: Sequence[str], name: str) -> Any:
    there = found if isinstance(found, Mapping) else {}
    for split in wanted:
        if split in there:
            return there[split]
    raise sb.DataError(
        f"{name} has the splits {', '.join(there) or 'none'}, but {' or '.join(wanted)} is needed"
    )


def _column(split: Any, kind: type, content: str, name: str) -> str:
    columns = [column for column, feature in split.features.items() if isinstance(feature, kind)]
    # Of two, such as CIFAR-100's coarse and fine labels, the finer; of two pictures, neither.
    sizes = [len(getattr(split.features[column], "names", ())) for column in columns]
    best = [column for column, size in zip(columns, sizes, strict=True) if size == max(sizes)]
    if len(best) != 1:
        columns_there = ", ".join(f"{key} ({value})" for key, value in split.features.items())
        raise sb.DataError(
            f"{name} has {len(best)} columns of {content}, but needs one: its columns are "
            f"{columns_there[:300]}"
        )
    return best[0]


def _read(split: Any, pictures: str, classes: str, count: int, name: str) -> Part:
    if not len(split):
        raise sb.DataError(f"{name} has a split without examples")
    labels = torch.empty(len(split), dtype=torch.int64)
    images, kinds = np.empty(0, np.uint8), (*_GREY, *_COLOURED)
    for row, example in enumerate(split.select_columns([pictures, classes])):
        where, picture, label = f"{name}, example {row}", example[pictures], example[classes]
        kind = getattr(picture, "mode", type(picture).__name__)
        if not row and kind in _GREY:
            kinds = _GREY
        if kind not in kinds:
            grey = ", and grey as the first" if kind in _COLOURED else ""
            raise sb.DataError(
                f"{where}: a picture of kind {kind}, but {' or '.join(kinds)} is needed{grey}"
            )
        levels = np.asarray(picture.convert("L" if kinds is _GREY else "RGB"))
        levels = levels.reshape(*levels.shape[:2], -1)
        if not row:
            images = np.empty((len(split), *levels.shape), np.uint8)
        if levels.shape != images.shape[1:] or levels.shape[0] != levels.shape[1]:
            raise sb.DataError(
                f"{where}: {levels.shape[1]} x {levels.shape[0]} pixels, but all images must be "
                f"square and as large as the first, {images.shape[2]} x {images.shape[1]}"
            )
        if type(label) is not int or not 0 <= label < count:
            raise sb.DataError(f"{where}: the label {label!r}, but there are 0 to {count - 1}")
        images[row], labels[row] = levels, label
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels
