"""Read CIFAR-10 and CIFAR-100 from their publishers' pickles, without running what is in them."""

import pickle
import pickletools
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

import selective_backprop as sb
from selective_backprop.lab.data.folders import FETCH_AGAIN, find_folder
from selective_backprop.lab.data.splits import Splits

_SHAPE = (3, 32, 32)
_ROW = 3 * 32 * 32


@dataclass(frozen=True)
class CifarLayout:
    """Which pickles hold a data set, and under which keys.

    Attributes:
        name: the data set, as messages call it.
        folder: the publisher's name for the folder.
        train_files: in order; they are joined.
        test_files: in order; they are joined.
        train_rows: images in each training file.
        test_rows: images in each test file.
        meta_file: the file with the names of the classes.
        labels_key: what the batches call their labels.
        names_key: what the meta file calls the names.
        classes: how many there are.
        source: where the publisher keeps the files.
    """

    name: str
    folder: str
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    train_rows: int
    test_rows: int
    meta_file: str
    labels_key: str
    names_key: str
    classes: int
    source: str = "https://www.cs.toronto.edu/~kriz/cifar.html"


CIFAR10 = CifarLayout(
    name="cifar10",
    folder="cifar-10-batches-py",
    train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test_files=("test_batch",),
    train_rows=10_000,
    test_rows=10_000,
    meta_file="batches.meta",
    labels_key="labels",
    names_key="label_names",
    classes=10,
)

CIFAR100 = CifarLayout(
    name="cifar100",
    folder="cifar-100-python",
    train_files=("train",),
    test_files=("test",),
    train_rows=50_000,
    test_rows=10_000,
    meta_file="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    classes=100,
)


def read_cifar_splits(layout: CifarLayout, root: Path | None) -> Splits:
    """Return a data set kept in CIFAR's pickles.

    Args:
        layout: what to look for, and what it must hold.
        root: the publisher's folder, or the one that holds it.

    Returns:
        Both splits in the files' order; three channels of 32 x 32 pixels.

    Raises:
        DataError: if a file is missing, damaged, not what the layout says, or asks for anything
            beyond lists, names and arrays of bytes.
    """
    folder = find_folder(
        root,
        name=layout.name,
        folders=(layout.folder, "."),
        files=(layout.meta_file,),
        source=layout.source,
    )
    class_names = _class_names(folder / layout.meta_file, layout)
    train_images, train_labels = _joined(folder, layout.train_files, layout.train_rows, layout)
    test_images, test_labels = _joined(folder, layout.test_files, layout.test_rows, layout)
    return Splits(train_images, train_labels, test_images, test_labels, class_names)


def unpickle(path: Path) -> dict[str, Any]:
    """Return the record in a pickle, its keys as text, without calling anything it names.

    Arrays come back as `PickledArray`: nothing of NumPy is called, and no other name is admitted.

    Args:
        path: a pickle of a mapping, as Python 2 or 3 wrote it.

    Returns:
        The mapping.

    Raises:
        DataError: if the file is missing, damaged, names something else, or holds no mapping.
    """
    try:
        with path.open("rb") as file:
            _check_memo(file, path.stat().st_size)
            file.seek(0)
            record = _ArraysOnly(file, encoding="bytes").load()
            excess = file.read(1)
    except FileNotFoundError as error:
        raise sb.DataError(
            f"{path} is missing, while other files of its set are there. Fetch it too, or pass "
            f"another folder with --root"
        ) from error
    except sb.DataError as error:
        raise sb.DataError(f"{path} {error}. {FETCH_AGAIN}") from None
    except Exception as error:
        # A damaged pickle may raise nearly anything: the bytes are a program.
        raise sb.DataError(f"{path} cannot be read as a pickle: {error}. {FETCH_AGAIN}") from error
    if excess:
        raise sb.DataError(f"{path} goes on after the end of its pickle. {FETCH_AGAIN}")
    if not isinstance(record, dict):
        raise sb.DataError(f"{path} holds a {type(record).__name__}, not a dict. {FETCH_AGAIN}")
    return {_text(key, path): value for key, value in record.items()}


class PickledArray:
    """Stands in for a NumPy array in a pickle, and keeps its state as it was written."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _PickledDtype:
    __slots__ = ("code",)

    def __init__(self, code: object, *_flags: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Accept the byte order and field names, of which an array of bytes has none."""


def _reconstruct(*_arguments: object) -> PickledArray:
    return PickledArray()


def _encode(text: str, encoding: str) -> bytes:
    # Protocol 2 writes the bytes of Python 3 as latin-1 text; no other codec is wanted.
    if encoding not in ("latin1", b"latin1"):
        raise sb.DataError(f"asks for the codec {_shown(encoding)}, where only latin1 belongs")
    return text.encode("latin1")


class _ArraysOnly(pickle.Unpickler):
    _ADMITTED: Mapping[tuple[str, str], object] = {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): PickledArray,
        ("numpy", "dtype"): _PickledDtype,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str, /) -> object:
        try:
            return self._ADMITTED[module, name]
        except KeyError:
            raise sb.DataError(
                f"asks for {module}.{name}, which no CIFAR file needs and which was not run"
            ) from None


def _check_memo(file: IO[bytes], length: int) -> None:
    # The unpickler makes room for whatever position of its memo a pickle names: 32 GB for
    # `r\xff\xff\xff\x7f`. An honest pickle numbers its objects from 0, each longer than a byte.
    for opcode, position, _ in pickletools.genops(file):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(position or 0) > length:
            raise sb.DataError(f"asks for more than {length} places to remember objects in")


def _joined(
    folder: Path, files: tuple[str, ...], rows: int, layout: CifarLayout
) -> tuple[UInt8[Tensor, "example channel height width"], Int64[Tensor, " example"]]:
    images = torch.empty((len(files) * rows, *_SHAPE), dtype=torch.uint8)
    labels = torch.empty(len(files) * rows, dtype=torch.int64)
    for number, file in enumerate(files):
        part = slice(number * rows, (number + 1) * rows)
        record = unpickle(folder / file)
        images[part] = _images(_entry(record, "data", folder / file), rows, folder / file)
        labels[part] = _labels(record, rows, folder / file, layout)
    return images, labels


def _images(array: object, rows: int, path: Path) -> UInt8[Tensor, "example channel height width"]:
    match array:
        case PickledArray(state=(1, tuple(shape), _PickledDtype(code=code), fortran, bytes(raw))):
            pass
        case _:
            raise sb.DataError(f"{path} holds no array of bytes as its 'data'. {FETCH_AGAIN}")
    if code not in ("u1", b"u1") or shape != (rows, _ROW):
        raise sb.DataError(
            f"{path} holds an array of type {_shown(code)} and shape {_shown(shape)} as its "
            f"'data', but 'u1' and ({rows}, {_ROW}) were expected. {FETCH_AGAIN}"
        )
    if len(raw) != rows * _ROW:
        raise sb.DataError(
            f"{path} holds {len(raw)} bytes of images, but {rows * _ROW} were expected. "
            f"{FETCH_AGAIN}"
        )
    content = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")
    return torch.from_numpy(content.reshape(rows, *_SHAPE).copy())


def _labels(
    record: Mapping[str, object], rows: int, path: Path, layout: CifarLayout
) -> Int64[Tensor, " example"]:
    labels = _entry(record, layout.labels_key, path)
    if not isinstance(labels, list) or len(labels) != rows:
        found = f"{len(labels)} labels" if isinstance(labels, list) else type(labels).__name__
        raise sb.DataError(
            f"{path} holds {found} as its '{layout.labels_key}', but a list of {rows} was "
            f"expected. {FETCH_AGAIN}"
        )
    for label in labels:
        if type(label) is not int or not 0 <= label < layout.classes:
            raise sb.DataError(
                f"{path} holds the label {_shown(label)}, but {layout.name} has the labels 0 to "
                f"{layout.classes - 1}. {FETCH_AGAIN}"
            )
    return torch.tensor(labels, dtype=torch.int64)


def _class_names(path: Path, layout: CifarLayout) -> tuple[str, ...]:
    names = _entry(unpickle(path), layout.names_key, path)
    if not isinstance(names, list) or len(names) != layout.classes:
        raise sb.DataError(
            f"{path} does not hold a list of {layout.classes} names as its "
            f"'{layout.names_key}'. {FETCH_AGAIN}"
        )
    return tuple(_text(name, path) for name in names)


def _entry(record: Mapping[str, object], key: str, path: Path) -> object:
    if key not in record:
        raise sb.DataError(
            f"{path} has no entry '{key}', only {', '.join(record)[:200] or 'nothing'}. "
            f"{FETCH_AGAIN}"
        )
    return record[key]


def _text(name: object, path: Path) -> str:
    # Python 2 wrote bytes where Python 3 writes text.
    match name:
        case str():
            return name
        case bytes():
            return name.decode("latin1")
        case _:
            raise sb.DataError(
                f"{path} holds a {type(name).__name__} where a name belongs. {FETCH_AGAIN}"
            )


def _shown(value: object) -> str:
    # Cut short, and whatever it is: a list may hold itself a million times over.
    try:
        return reprlib.repr(value)
    except ValueError:  # a number of more digits than Python prints
        return f"a {type(value).__name__}"
