"""Read MNIST and its kin: IDX files, plain or compressed, as their publishers ship them."""

import gzip
import io
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

import selective_backprop as sb
from selective_backprop.lab.data.folders import FETCH_AGAIN, find_folder
from selective_backprop.lab.data.splits import Splits

_UNSIGNED_BYTE = 0x08


@dataclass(frozen=True)
class IdxLayout:
    """Where a data set's four IDX files lie, and what they must hold.

    Attributes:
        name: the data set, as messages call it.
        folders: where to look under the user's folder, in order of preference.
        class_names: one name per class, in the order of the labels.
        first_labels: how the training labels begin. MNIST's kin use the same file names, and
            only the labels tell them apart.
        source: where the publisher keeps the files.
        train: training examples.
        test: test examples.
        side: height and width of an image, in pixels.
    """

    name: str
    folders: tuple[str, ...]
    class_names: tuple[str, ...]
    first_labels: tuple[int, ...]
    source: str
    train: int = 60_000
    test: int = 10_000
    side: int = 28


MNIST = IdxLayout(
    name="mnist",
    folders=("MNIST/raw", "MNIST", "mnist", "raw", "."),
    class_names=tuple("0123456789"),
    first_labels=(5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
    source="https://yann.lecun.com/exdb/mnist",
)

FASHION_MNIST = IdxLayout(
    name="fashion-mnist",
    folders=(
        "FashionMNIST/raw",
        "FashionMNIST",
        "fashion_mnist",
        "fashion-mnist",
        "data/fashion",
        "raw",
        ".",
    ),
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    first_labels=(9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
    source="https://github.com/zalandoresearch/fashion-mnist",
)


def read_idx_splits(layout: IdxLayout, root: Path | None) -> Splits:
    """Return a data set kept in four IDX files.

    Args:
        layout: what to look for, and what it must hold.
        root: the folder that holds the files, or one that holds that folder by its usual name.

    Returns:
        Both splits in the files' order; images have one channel.

    Raises:
        DataError: if a file is missing, damaged, or not what the layout says.
    """
    first = "train-images-idx3-ubyte"
    folder = find_folder(
        root,
        name=layout.name,
        folders=layout.folders,
        files=(first, f"{first}.gz"),
        source=layout.source,
    )
    train_labels = _labels(folder, "train-labels-idx1-ubyte", layout.train, layout)
    _refuse_anothers(train_labels, folder, layout)
    return Splits(
        train_images=_images(folder, first, layout.train, layout),
        train_labels=train_labels,
        test_images=_images(folder, "t10k-images-idx3-ubyte", layout.test, layout),
        test_labels=_labels(folder, "t10k-labels-idx1-ubyte", layout.test, layout),
        class_names=layout.class_names,
    )


def read_idx(path: Path, shape: tuple[int, ...]) -> UInt8[Tensor, "..."]:
    """Return the bytes of one IDX file, which must have exactly this shape.

    No more is read or allocated than the shape asks for, whatever the file claims.

    Args:
        path: the file; compressed if its name ends in .gz.
        shape: the dimensions that the header must give.

    Returns:
        A tensor of that shape.

    Raises:
        DataError: if the file cannot be read, or its magic number, dimensions or length differ.
    """
    expected = math.prod(shape)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            _check_header(file, path, shape)
            content = bytearray(file.read(expected))
            # Reading past the end also makes gzip verify its checksum.
            excess = file.read(1)
    except (OSError, EOFError, zlib.error) as error:
        raise sb.DataError(f"{path} cannot be read: {error}. {FETCH_AGAIN}") from error
    if len(content) != expected:
        raise sb.DataError(
            f"{path} is truncated: {len(content)} of {expected} bytes follow its header. "
            f"{FETCH_AGAIN}"
        )
    if excess:
        raise sb.DataError(f"{path} goes on after the {expected} bytes it announces. {FETCH_AGAIN}")
    return torch.frombuffer(content, dtype=torch.uint8).reshape(shape)


def _check_header(file: io.BufferedIOBase, path: Path, shape: tuple[int, ...]) -> None:
    length = 4 + 4 * len(shape)
    header = file.read(length)
    magic = bytes((0, 0, _UNSIGNED_BYTE, len(shape)))
    if header[:4] != magic[: len(header)]:
        raise sb.DataError(
            f"{path} begins with {header[:4].hex(' ')}, but IDX bytes in {len(shape)} dimensions "
            f"begin with {magic.hex(' ')}. {FETCH_AGAIN}"
        )
    if len(header) < length:
        raise sb.DataError(
            f"{path} is truncated: {len(header)} of the {length} bytes of its header are there. "
            f"{FETCH_AGAIN}"
        )
    dimensions = struct.unpack(f">{len(shape)}I", header[4:])
    if dimensions != shape:
        raise sb.DataError(
            f"{path} holds {_product(dimensions)}, but {_product(shape)} was expected. "
            f"{FETCH_AGAIN}"
        )


def _images(
    folder: Path, stem: str, count: int, layout: IdxLayout
) -> UInt8[Tensor, "example 1 height width"]:
    return read_idx(_file(folder, stem), (count, layout.side, layout.side)).unsqueeze(1)


def _labels(folder: Path, stem: str, count: int, layout: IdxLayout) -> Int64[Tensor, " example"]:
    path = _file(folder, stem)
    labels = read_idx(path, (count,)).to(torch.int64)
    highest = int(labels.max())
    if highest >= len(layout.class_names):
        raise sb.DataError(
            f"{path} holds the label {highest}, but {layout.name} has the labels 0 to "
            f"{len(layout.class_names) - 1}. {FETCH_AGAIN}"
        )
    return labels


def _refuse_anothers(labels: Int64[Tensor, " example"], folder: Path, layout: IdxLayout) -> None:
    begins = tuple(labels[: len(layout.first_labels)].tolist())
    for other in (MNIST, FASHION_MNIST):
        if other.name != layout.name and begins == other.first_labels:
            raise sb.DataError(
                f"{folder} holds the labels of {other.name}, but {layout.name} was asked for, "
                f"whose files have the same names. Pass its own folder with --root"
            )


def _file(folder: Path, stem: str) -> Path:
    for path in (folder / stem, folder / f"{stem}.gz"):
        if path.is_file():
            return path
    raise sb.DataError(
        f"neither {stem} nor {stem}.gz is in {folder}, where the other files are. Fetch it too, "
        f"or pass another folder with --root"
    )


def _product(dimensions: tuple[int, ...]) -> str:
    return " x ".join(map(str, dimensions))
