"""Read CIFAR-10 and CIFAR-100 as published, pickled for Python."""

import pickle
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selective_backprop_lab.data.folders import damaged, find_file, find_folder
from selective_backprop_lab.data.splits import Part, Splits

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


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
        if pixels.dtype != np.uint8 or pixels.shape != (rows, _PIXELS):
            raise damaged(path, f"holds no array of {rows} x {_PIXELS} bytes as its 'data'")
        if not isinstance(labels, list) or len(labels) != rows:
            raise damaged(path, f"holds no list of {rows} labels as its {key!r}")
        # The wrong labels are not shown, since a damaged pickle may hold anything of any size.
        if not all(type(label) is int and 0 <= label < layout.classes for label in labels):
            highest = layout.classes - 1
            raise damaged(path, f"holds labels that are no whole numbers from 0 to {highest}")
        return torch.from_numpy(pixels.reshape(-1, *_SHAPE).copy()), torch.tensor(labels)

    train = [read(file, layout.train_rows) for file in layout.train_files]
    images, labels = (torch.cat(parts) for parts in zip(*train, strict=True))
    return Splits(images, labels, *read(layout.test_file, layout.test_rows), tuple(names))


def unpickle(path: Path) -> dict[Any, Any]:
    """Return the dict in a pickle, without calling anything except what makes arrays."""
    file = BytesIO(path.read_bytes())
    try:
        record = _ArraysOnly(file, encoding="bytes").load()
    except Exception as error:
        # A damaged pickle may raise nearly anything, because its bytes are a program.
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
