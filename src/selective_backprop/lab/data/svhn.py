"""Read SVHN's cropped digits from their publisher's MATLAB files."""

import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from scipy.io import loadmat, whosmat
from torch import Tensor

import selective_backprop as sb
from selective_backprop.lab.data.folders import FETCH_AGAIN, find_folder
from selective_backprop.lab.data.splits import Splits

_SIDE, _CHANNELS, _CLASSES = 32, 3, 10
_HEADER, _COMPRESSED = 128, 15  # bytes before the first variable; the tag of a compressed one


@dataclass(frozen=True)
class SvhnLayout:
    """Which files hold a data set, and how many digits each must have.

    Attributes:
        name: the data set, as messages call it.
        train: files to train on and their examples, in order; they are joined.
        test: the file to test on and its examples.
        source: where the publisher keeps the files.
    """

    name: str
    train: tuple[tuple[str, int], ...]
    test: tuple[str, int] = ("test_32x32.mat", 26_032)
    source: str = "http://ufldl.stanford.edu/housenumbers"


SVHN = SvhnLayout(name="svhn", train=(("train_32x32.mat", 73_257),))

SVHN_EXTRA = SvhnLayout(name="svhn-extra", train=(*SVHN.train, ("extra_32x32.mat", 531_131)))


def read_svhn_splits(layout: SvhnLayout, root: Path | None) -> Splits:
    """Return a data set kept in SVHN's files.

    The 604,388 images to train on of `svhn-extra` are 1.9 GB, and reading them takes twice that.

    Args:
        layout: what to look for, and what it must hold.
        root: the folder that holds the files, or one that holds that folder by its usual name.

    Returns:
        Both splits in the files' order; three channels of 32 x 32 pixels. Class numbers are the
        digits, where the files have 10 for a 0.

    Raises:
        DataError: if a file is missing, damaged, or not what the layout says.
    """
    folder = find_folder(
        root,
        name=layout.name,
        folders=("svhn", "SVHN", "."),
        files=(layout.train[0][0],),
        source=layout.source,
    )
    for file, count in (*layout.train, layout.test):
        _check(folder / file, count)  # all of them, since reading the first takes its time
    train_images, train_labels = _joined(folder, layout.train)
    test_images, test_labels = _joined(folder, (layout.test,))
    names = tuple(str(digit) for digit in range(_CLASSES))
    return Splits(train_images, train_labels, test_images, test_labels, names)


def _joined(
    folder: Path, files: tuple[tuple[str, int], ...]
) -> tuple[UInt8[Tensor, "example channel height width"], Int64[Tensor, " example"]]:
    total = sum(count for _, count in files)
    images = torch.empty((total, _CHANNELS, _SIDE, _SIDE), dtype=torch.uint8)
    labels = torch.empty(total, dtype=torch.int64)
    done = 0
    for file, count in files:
        part = slice(done, done + count)
        found = _of_matlab(folder / file, loadmat, variable_names=["X", "y"])
        images.numpy()[part] = found["X"].transpose(3, 2, 0, 1)
        labels[part] = _labels(found["y"], folder / file)
        done += count
    return images, labels


def _check(path: Path, count: int) -> None:
    """Refuse a file by what it says it holds, before room is made for that."""
    if not path.is_file():
        raise sb.DataError(
            f"{path.name} is not in {path.parent}, where other files of its set are. Fetch it too, "
            f"or pass another folder with --root"
        )
    if not _is_compressed(path):
        # As the publisher's are. Others carry no checksum, and damage may crash SciPy's reader.
        raise sb.DataError(
            f"{path} holds variables that are not compressed, as the publisher's are, or is "
            f"damaged. {FETCH_AGAIN}"
        )
    variables = _of_matlab(path, whosmat)
    for name, shape, kinds in (
        ("X", (_SIDE, _SIDE, _CHANNELS, count), {"uint8"}),
        ("y", (count, 1), {"uint8", "double"}),
    ):
        found = [(size, kind) for variable, size, kind in variables if variable == name]
        if len(found) != 1 or found[0][0] != shape or found[0][1] not in kinds:
            words = ", ".join(f"{kind} of {size}" for size, kind in found) or "nothing"
            raise sb.DataError(
                f"{path} holds {words} as its {name!r}, but {' or '.join(sorted(kinds))} of "
                f"{shape} was expected. {FETCH_AGAIN}"
            )


def _is_compressed(path: Path) -> bool:
    """Return whether every variable of a file is, as its tags say."""
    with path.open("rb") as file:
        order = "<" if file.read(_HEADER)[-2:] == b"IM" else ">"
        found = 0
        while len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            if kind != _COMPRESSED:
                return False
            found += 1
            file.seek(size, 1)
    return found > 0


def _of_matlab(path: Path, read: Callable[..., Any], **options: Any) -> Any:
    try:
        with warnings.catch_warnings(action="error"):  # SciPy warns where it is in doubt
            return read(path, appendmat=False, **options)
    except Exception as error:
        # A damaged file may make SciPy raise nearly anything.
        raise sb.DataError(
            f"{path} cannot be read as a MATLAB file: {error}. {FETCH_AGAIN}"
        ) from error


def _labels(array: np.ndarray, path: Path) -> Int64[Tensor, " example"]:
    given = array.reshape(-1)
    labels = np.where(np.isfinite(given), given, 0).astype(np.int64)
    wrong = given[(labels != given) | (labels < 1) | (labels > _CLASSES)]
    if len(wrong):
        raise sb.DataError(
            f"{path} holds the label {wrong[0]}, but SVHN has the labels 1 to {_CLASSES}. "
            f"{FETCH_AGAIN}"
        )
    return torch.from_numpy(labels % _CLASSES)
