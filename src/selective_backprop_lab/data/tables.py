"""Read two tables most of whose rows are easy, KDD Cup 1999 and Statlog Shuttle, as published."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selective_backprop_lab.data.folders import damaged, find_file, find_folder
from selective_backprop_lab.data.random_bits import drawn_order, key_of
from selective_backprop_lab.data.splits import Splits

_CONNECTIONS, _KDD_COLUMNS, _KDD_TESTED = 494_021, 42, 40_000
_WORDS = [1, 2, 3]  # the columns of protocol, service and flag
_FURTHEST = 8.0  # deviations from the mean; rare words and huge numbers are cut there
_SHUTTLE = {"shuttle.trn": 43_500, "shuttle.tst": 14_500}
_POSITIONS = ("Rad Flow", "Fpv Close", "Fpv Open", "High", "Bypass", "Bpv Close", "Bpv Open")
_ORDER = int.from_bytes(b"kdd99")


def read_kdd99(root: Path | None) -> Splits:
    """Return the 494,021 connections of the published tenth, 40,000 of them to test on.

    Three in four come more than once, so only connections that come once are tested on. Numbers are
    log(1 + |x|), a word becomes one feature for each of its values, and all have mean 0 and
    deviation 1, but lie at most 8 deviations from 0. The 23 classes are the kinds of attack and
    "normal"; the largest, "smurf", has 57 % of the rows, and half of all classes have fewer than 60
    rows.

    Source:
        Stolfo et al. 1999, KDD Cup 1999 Data, UCI Machine Learning Repository,
        doi:10.24432/C51C7N.
    """
    names = ("kddcup.data_10_percent.gz", "kddcup.data_10_percent")
    folder = find_folder(
        root,
        name="kdd99",
        folders=("kdd99", "."),
        files=names,
        source="https://archive.ics.uci.edu/dataset/130/kdd+cup+1999+data",
    )
    path = find_file(folder, *names)
    table = _read(path, _CONNECTIONS, _KDD_COLUMNS, ",")
    import pandas as pd  # slow

    kinds = table.iloc[:, -1]
    numbers = _numbers(path, table.drop(columns=[*_WORDS, _KDD_COLUMNS - 1]))
    words = pd.get_dummies(table[_WORDS].astype(str), dtype=np.float32)
    features = np.concatenate([np.log1p(np.abs(numbers)), words], axis=1)
    deviation = features.std(0)
    features = (features - features.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    labels, classes = pd.factorize(kinds.astype(str).str.removesuffix("."), sort=True)
    once = torch.from_numpy(~table.duplicated(keep=False).to_numpy())
    inputs = torch.from_numpy(features.clip(-_FURTHEST, _FURTHEST).astype(np.float32))
    targets = torch.from_numpy(labels.astype(np.int64))
    order = drawn_order(key_of(_ORDER), len(inputs))
    tested = order[once[order]][:_KDD_TESTED]
    trained = torch.ones(len(inputs), dtype=torch.bool)
    trained[tested] = False
    train, test = ((inputs[rows], targets[rows]) for rows in (trained, tested))
    return Splits(*train, *test, tuple(classes), standardised=False, tested=once[trained])


def read_shuttle(root: Path | None) -> Splits:
    """Return 58,000 rows of nine numbers, 14,500 of them to test on, in seven classes.

    Features are the numbers and their signed logarithms, sign(x) log(1 + |x|). "Rad Flow" has 79 %
    of the rows, and the four rarest classes together have less than half a per cent.

    Source:
        Statlog (Shuttle), UCI Machine Learning Repository, doi:10.24432/C5WS31.
    """
    folder = find_folder(
        root,
        name="shuttle",
        folders=("shuttle", "."),
        files=tuple(_SHUTTLE),
        source="https://archive.ics.uci.edu/dataset/148/statlog+shuttle",
    )
    inputs, labels = list[Tensor](), list[Tensor]()
    for name, rows in _SHUTTLE.items():
        path = find_file(folder, name)
        numbers = _numbers(path, _read(path, rows, 10, " "))
        values, kinds = numbers[:, :-1], numbers[:, -1] - 1
        if not np.isin(kinds, range(len(_POSITIONS))).all():
            raise damaged(path, "has a class that is none of 1 to 7")
        features = np.concatenate([values, np.sign(values) * np.log1p(np.abs(values))], axis=1)
        inputs.append(torch.from_numpy(features))
        labels.append(torch.from_numpy(kinds.astype(np.int64)))
    return Splits(inputs[0], labels[0], inputs[1], labels[1], _POSITIONS)


def _read(path: Path, rows: int, columns: int, separator: str) -> Any:
    import pandas as pd  # slow

    try:
        table = pd.read_csv(
            path, header=None, sep=separator, nrows=rows + 1, na_filter=False, low_memory=False
        )
    except (ValueError, EOFError, zlib.error) as error:
        raise damaged(path, f"is no table ({error})") from error
    if table.shape != (rows, columns):
        raise damaged(path, f"has {table.shape} rows and columns, not {(rows, columns)}")
    return table


def _numbers(path: Path, table: Any) -> np.ndarray:
    try:
        numbers = table.to_numpy(np.float32)
    except ValueError as error:
        raise damaged(path, f"has a word where a number belongs ({error})") from error
    if not np.isfinite(numbers).all():
        raise damaged(path, "has a number that is not finite")
    return numbers
