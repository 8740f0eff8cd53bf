"""Read MNIST and its kin: IDX files, plain or compressed, as their publishers ship them."""

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.folders import damaged, find_file, find_folder
from selective_backprop_lab.data.splits import Part, Splits
from selective_backprop_lab.shapes import UInt8


@dataclass(frozen=True)
class IdxLayout:
    """Where a data set's four IDX files are, and what they must hold."""

    name: str
    folders: tuple[str, ...]  # under the user's folder, in order of preference
    class_names: tuple[str, ...]
    # The first training labels, the only way to tell the files of MNIST and its kin apart.
    first_labels: tuple[int, ...]
    source: str
    train: int = 60_000
    test: int = 10_000
    side: int = 28  # side of an image, in pixels


MNIST = IdxLayout(
    name="mnist",
    folders=("MNIST/raw", "MNIST", "mnist", "raw", "."),
    class_names=tuple("0123456789"),
    first_labels=(5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
    source="https://yann.lecun.com/exdb/mnist",
)

_FASHION = "FashionMNIST/raw FashionMNIST fashion_mnist fashion-mnist data/fashion raw ."
_GARMENTS = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
FASHION_MNIST = IdxLayout(
    name="fashion-mnist",
    folders=tuple(_FASHION.split()),
    class_names=tuple(_GARMENTS.split(",")),
    first_labels=(9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
    source="https://github.com/zalandoresearch/fashion-mnist",
)


def read_idx_splits(layout: IdxLayout, root: Path | None) -> Splits:
    """Return a data set from four IDX files, in their folder or in one that holds this folder."""
    first = "train-images-idx3-ubyte"
    folder = find_folder(
        root,
        name=layout.name,
        folders=layout.folders,
        files=(first, f"{first}.gz"),
        source=layout.source,
    )

    def read(part: str, count: int) -> Part:
        images, labels = (
            find_file(folder, f"{part}-{stem}-ubyte", f"{part}-{stem}-ubyte.gz")
            for stem in ("images-idx3", "labels-idx1")
        )
        found = read_idx(labels, (count,)).to(torch.int64)
        highest, last = int(found.max()), len(layout.class_names) - 1
        if highest > last:
            raise damaged(labels, f"holds the label {highest}, but labels are from 0 to {last}")
        return read_idx(images, (count, layout.side, layout.side)).unsqueeze(1), found

    train_inputs, train_labels = read("train", layout.train)
    begins = tuple(train_labels[: len(layout.first_labels)].tolist())
    for other in (MNIST, FASHION_MNIST):
        if other.name != layout.name and begins == other.first_labels:
            raise sb.DataError(
                f"{folder} holds {other.name}, but {layout.name} was asked for; the files have "
                f"the same names. Pass the folder of {layout.name} with --root"
            )
    return Splits(train_inputs, train_labels, *read("t10k", layout.test), layout.class_names)


def read_idx(path: Path, shape: tuple[int, ...]) -> UInt8[Tensor, "..."]:
    """Return the bytes of one IDX file (.gz if compressed), which must have exactly this shape."""
    magic = bytes((0, 0, 8, len(shape)))  # 8 stands for unsigned bytes
    start = len(magic) + 4 * len(shape)
    length = start + math.prod(shape)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            # Reading one byte more also makes gzip verify its checksum.
            content = bytearray(file.read(length + 1))
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, f"cannot be read: {error}") from error
    header = content[:start]
    if header[:4] != magic:
        begins, expected = header[:4].hex(" ") or "nothing", magic.hex(" ")
        raise damaged(path, f"begins with {begins}, but {expected} was expected")
    found = tuple(np.frombuffer(header[4 : len(header) // 4 * 4], ">u4").tolist())
    if found != shape:
        raise damaged(path, f"holds bytes of shape {found}, but {shape} was expected")
    if len(content) != length:
        verdict = "is truncated" if len(content) < length else "continues after its end"
        raise damaged(path, f"{verdict}: {length} bytes were expected")
    return torch.frombuffer(content, dtype=torch.uint8, offset=start).reshape(shape)
