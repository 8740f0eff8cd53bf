"""Read SVHN's cropped digits from their publisher's MATLAB files."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy  # it imports its parts when they are used
import torch

from selective_backprop_lab.data.folders import damaged, find_file, find_folder
from selective_backprop_lab.data.splits import Part, Splits

_SIDE, _CHANNELS, _CLASSES = 32, 3, 10


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
    parts = [_read(path, count) for path, count in train]
    train_inputs, train_labels = (torch.cat(each) for each in zip(*parts, strict=True))
    return Splits(train_inputs, train_labels, *_read(*test), tuple("0123456789"))


def _read(path: Path, count: int) -> Part:
    try:
        with warnings.catch_warnings(action="error"):  # SciPy warns if a file looks wrong
            found = scipy.io.loadmat(path, appendmat=False, variable_names=["X", "y"])
    except Exception as error:
        # A damaged file may make SciPy raise nearly anything.
        raise damaged(path, f"cannot be read as a MATLAB file: {error}") from error
    for name, shape, kinds in (
        ("X", (_SIDE, _SIDE, _CHANNELS, count), ("uint8",)),
        ("y", (count, 1), ("uint8", "float64")),
    ):
        value = np.asarray(found.get(name))
        if value.shape != shape or value.dtype not in kinds:
            there = f"{value.dtype} of {value.shape}"
            expected = f"{' or '.join(kinds)} of {shape}"
            raise damaged(path, f"holds {there} as its {name!r}, but {expected} was expected")
    labels = found["y"].reshape(-1)
    wrong = labels[~np.isin(labels, np.arange(1, _CLASSES + 1))]
    if len(wrong):
        raise damaged(path, f"holds the label {wrong[0]}, but labels are from 1 to {_CLASSES}")
    images = torch.from_numpy(found["X"]).permute(3, 2, 0, 1).contiguous()
    return images, torch.from_numpy(labels.astype(np.int64) % _CLASSES)
