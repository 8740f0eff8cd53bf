"""Read images as their publishers ship them: IDX files, Python's pickles, and MATLAB's files."""

import gzip
import math
import pickle
import warnings
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # it imports its parts when they are used
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.splits import Part, Splits, damaged, find_file, find_folder
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


@dataclass(frozen=True)
class CifarLayout:
    """How the publisher's files hold a data set."""

    name: str
    folder: str
    names_file: str  # the file with the names of the classes
    train_files: tuple[str, ...]
    test_file: str
    train_rows: int  # images in each training file
    classes: int
    prefix: str  # prefix of the keys that hold labels and class names
    test_rows: int = 10_000


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR10 = CifarLayout(
    "cifar10", "cifar-10-batches-py", "batches.meta", _BATCHES, "test_batch", 10_000, 10, ""
)
CIFAR100 = CifarLayout(
    "cifar100", "cifar-100-python", "meta", ("train",), "test", 50_000, 100, "fine_"
)


def read_cifar_splits(layout: CifarLayout, root: Path | None) -> Splits:
    """Return CIFAR-10 or CIFAR-100 from the publisher's folder, or the one that holds it."""
    folder = find_folder(
        root,
        name=layout.name,
        folders=(layout.folder, "."),
        files=(layout.names_file,),
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
    )
    names_file = folder / layout.names_file
    names = unpickle(names_file).get(f"{layout.prefix}label_names")
    names = [_text(name) for name in names] if isinstance(names, list) else []
    if len(names) != layout.classes or not all(isinstance(name, str) for name in names):
        raise damaged(names_file, f"does not hold the names of {layout.classes} classes")

    def read(file: str, rows: int) -> Part:
        path = find_file(folder, file)
        record, key = unpickle(path), f"{layout.prefix}labels"
        pixels, labels = np.asarray(record.get("data")), record.get(key)
        if pixels.dtype != np.uint8 or pixels.shape != (rows, 3072):
            raise damaged(path, f"holds no array of {rows} x 3072 bytes as its 'data'")
        if not isinstance(labels, list) or len(labels) != rows:
            raise damaged(path, f"holds no list of {rows} labels as its {key!r}")
        # The wrong labels are not shown, since a damaged pickle may hold anything of any size.
        if not all(type(label) is int and 0 <= label < layout.classes for label in labels):
            highest = layout.classes - 1
            raise damaged(path, f"holds labels that are no whole numbers from 0 to {highest}")
        return torch.from_numpy(pixels.reshape(-1, 3, 32, 32).copy()), torch.tensor(labels)

    train = [read(file, layout.train_rows) for file in layout.train_files]
    images, labels = (torch.cat(parts) for parts in zip(*train, strict=True))
    return Splits(images, labels, *read(layout.test_file, layout.test_rows), tuple(names))


def unpickle(path: Path) -> dict[Any, Any]:
    """Return the dict in a pickle, without calling anything except what makes arrays."""
    file = BytesIO(path.read_bytes())
    try:
        record = _ArraysOnly(file, encoding="bytes").load()
    except Exception as error:  # the bytes of a pickle are a program, which may raise anything
        raise damaged(path, f"cannot be read as a pickle: {error}") from error
    if not isinstance(record, dict) or file.read(1):
        raise damaged(path, "is not one pickled dict and nothing else")
    return {_text(key): value for key, value in record.items()}


def _text(value: Any) -> Any:
    # Python 2 wrote bytes where Python 3 writes text.
    return value.decode("latin1") if isinstance(value, bytes) else value


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # pickle protocol 2 uses it for the bytes of Python 3
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which no CIFAR file needs; it was not run"
            )
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


@dataclass(frozen=True)
class SvhnLayout:
    """Which files hold a data set, and how many digits each must have."""

    name: str
    train: tuple[tuple[str, int], ...]
    test: tuple[str, int] = ("test_32x32.mat", 26_032)


SVHN = SvhnLayout(name="svhn", train=(("train_32x32.mat", 73_257),))
SVHN_EXTRA = SvhnLayout(name="svhn-extra", train=(*SVHN.train, ("extra_32x32.mat", 531_131)))


def read_svhn_splits(layout: SvhnLayout, root: Path | None) -> Splits:
    """Return a data set from SVHN's files, in their folder or in one that holds this folder.

    Class numbers are the digits; the files have 10 for a 0. `svhn-extra` takes 1.9 GB of memory,
    and twice as much while it is read.
    """
    folder = find_folder(
        root,
        name=layout.name,
        folders=("svhn", "SVHN", "."),
        files=(layout.train[0][0],),
        source="http://ufldl.stanford.edu/housenumbers",
    )
    # All files are found before the first is read, because reading takes long.
    *train, test = [(find_file(folder, file), n) for file, n in (*layout.train, layout.test)]
    parts = [_read_mat(path, count) for path, count in train]
    train_inputs, train_labels = (torch.cat(each) for each in zip(*parts, strict=True))
    return Splits(train_inputs, train_labels, *_read_mat(*test), tuple("0123456789"))


def _read_mat(path: Path, count: int) -> Part:
    try:
        with warnings.catch_warnings(action="error"):  # SciPy warns if a file looks wrong
            found = scipy.io.loadmat(path, appendmat=False, variable_names=["X", "y"])
    except Exception as error:  # a damaged file may make SciPy raise nearly anything
        raise damaged(path, f"cannot be read as a MATLAB file: {error}") from error
    for name, shape, kinds in (
        ("X", (32, 32, 3, count), ("uint8",)),
        ("y", (count, 1), ("uint8", "float64")),
    ):
        value = np.asarray(found.get(name))
        if value.shape != shape or value.dtype not in kinds:
            there = f"{value.dtype} of {value.shape}"
            expected = f"{' or '.join(kinds)} of {shape}"
            raise damaged(path, f"holds {there} as its {name!r}, but {expected} was expected")
    labels = found["y"].reshape(-1)
    wrong = labels[~np.isin(labels, np.arange(1, 11))]
    if len(wrong):
        raise damaged(path, f"holds the label {wrong[0]}, but labels are from 1 to 10")
    images = torch.from_numpy(found["X"]).permute(3, 2, 0, 1).contiguous()
    return images, torch.from_numpy(labels.astype(np.int64) % 10)
