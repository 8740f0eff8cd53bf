"""Read published tables: UCI Adult, KDD Cup 1999 and Statlog Shuttle."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selective_backprop_lab.data.random_bits import drawn_order, key_of
from selective_backprop_lab.data.splits import Splits, damaged, find_file, find_folder

_ADULT = {"adult.data": 32_561, "adult.test": 16_281}  # their rows
_ADULT_NUMBERS = [0, 2, 4, 10, 11, 12]  # columns; the others are categories
_INCOMES = ("<=50K", ">50K")
_KDD, _KDD_TESTED = {"kddcup.data_10_percent.gz": 494_021}, 40_000
_KDD_WORDS = [1, 2, 3]  # the columns of protocol, service and flag
_FURTHEST = 8.0  # deviations from the mean; rare words and huge numbers are cut there
_SHUTTLE = {"shuttle.trn": 43_500, "shuttle.tst": 14_500}
_POSITIONS = ("Rad Flow", "Fpv Close", "Fpv Open", "High", "Bypass", "Bpv Close", "Bpv Open")


def read_adult(root: Path | None) -> Splits:
    """Return 48,842 adults, 16,281 of them to test on, with 6 numbers and 8 categories each.

    A category becomes one feature for each of its values, 0 or 1; a missing value, `?`, is a value
    too. The numbers have mean 0 and deviation 1 over the training part. Class 1 is an income above
    50,000 dollars a year.

    Source:
        Becker and Kohavi 1996, Adult, UCI Machine Learning Repository, doi:10.24432/C5XW20.
    """
    import pandas as pd  # slow

    given = {"skipinitialspace": True, "comment": "|", "sep": ","}
    parts = _read_all(root, "adult", _ADULT, 15, "2/adult", **given)
    for (path, table), rows in zip(parts, _ADULT.values(), strict=True):
        table[14] = table[14].str.removesuffix(".")  # of the test part
        if (known := table[14].isin(_INCOMES)).sum() != rows:
            raise damaged(path, f"has {int(known.sum()):,} labelled rows, not {rows:,}")
    table = pd.concat([table for _, table in parts])
    numbers = np.concatenate([_numbers(*part, _ADULT_NUMBERS) for part in parts])
    train = numbers[: len(parts[0][1])]
    categories = pd.get_dummies(table.drop(columns=[*_ADULT_NUMBERS, 14]), dtype=float)
    features = np.concatenate([(numbers - train.mean(0)) / train.std(0), categories], axis=1)
    inputs, labels = (
        torch.from_numpy(each).split([len(part) for _, part in parts])
        for each in (features.astype(np.float32), (table[14] == _INCOMES[1]).to_numpy(np.int64))
    )
    return Splits(inputs[0], labels[0], inputs[1], labels[1], _INCOMES, standardised=False)


def read_kdd99(root: Path | None) -> Splits:
    """Return the 494,021 connections of the published tenth, 40,000 of them to test on.

    Three in four come more than once, so only connections that come once are tested on. Numbers are
    log(1 + |x|), a word becomes one feature for each of its values, and all have mean 0 and
    deviation 1, but lie at most 8 deviations from 0. The 23 classes are 22 attacks and "normal".

    Source:
        Stolfo et al. 1999, KDD Cup 1999 Data, UCI Machine Learning Repository, doi:10.24432/C51C7N.
    """
    import pandas as pd  # slow

    ((path, table),) = _read_all(root, "kdd99", _KDD, 42, "130/kdd+cup+1999+data", sep=",")
    numbers = _numbers(path, table, table.columns.difference([*_KDD_WORDS, 41]))
    words = pd.get_dummies(table[_KDD_WORDS].astype(str), dtype=float)
    features = np.concatenate([np.log1p(np.abs(numbers)), words], axis=1)
    deviation = features.std(0)
    features = (features - features.mean(0)) / np.where(deviation > 0, deviation, 1.0)
    inputs = torch.from_numpy(features.clip(-_FURTHEST, _FURTHEST).astype(np.float32))
    kinds, names = pd.factorize(table[41].astype(str).str.removesuffix("."), sort=True)
    labels = torch.from_numpy(kinds.astype(np.int64))
    once = torch.from_numpy(~table.duplicated(keep=False).to_numpy())
    order = drawn_order(key_of(int.from_bytes(b"kdd99")), len(inputs))
    tested = order[once[order]][:_KDD_TESTED]
    trained = torch.ones(len(inputs), dtype=torch.bool)
    trained[tested] = False
    train, test = ((inputs[rows], labels[rows]) for rows in (trained, tested))
    return Splits(*train, *test, tuple(names), standardised=False, tested=once[trained])


def read_shuttle(root: Path | None) -> Splits:
    """Return 58,000 rows of nine numbers, 14,500 of them to test on, in seven classes.

    Features are the numbers and their signed logarithms, sign(x) log(1 + |x|).

    Source:
        Statlog (Shuttle), UCI Machine Learning Repository, doi:10.24432/C5WS31.
    """
    inputs, labels = list[Tensor](), list[Tensor]()
    for path, table in _read_all(root, "shuttle", _SHUTTLE, 10, "148/statlog+shuttle", sep=" "):
        values, kinds = np.split(_numbers(path, table, table.columns), [9], axis=1)
        if not np.isin(kinds, range(1, 8)).all():
            raise damaged(path, "has a class that is none of 1 to 7")
        features = np.concatenate([values, np.sign(values) * np.log1p(np.abs(values))], axis=1)
        inputs.append(torch.from_numpy(features.astype(np.float32)))
        labels.append(torch.from_numpy(kinds[:, 0].astype(np.int64) - 1))
    return Splits(inputs[0], labels[0], inputs[1], labels[1], _POSITIONS)


def _read_all(
    root: Path | None, name: str, files: dict[str, int], columns: int, page: str, **options: Any
) -> list[tuple[Path, Any]]:
    source = f"https://archive.ics.uci.edu/dataset/{page}"
    names = tuple(files)
    folder = find_folder(root, name=name, folders=(name, "."), files=names, source=source)
    import pandas as pd  # slow

    found = []
    for file, rows in files.items():
        path = find_file(folder, file)
        try:
            options |= {"names": range(columns), "index_col": False, "na_filter": False}
            table = pd.read_csv(path, nrows=rows + 1, low_memory=False, **options)
        except (ValueError, EOFError, zlib.error) as error:
            raise damaged(path, f"cannot be read as {columns} columns ({error})") from error
        if len(table) != rows:
            raise damaged(path, f"has {len(table):,} rows, not {rows:,}")
        found.append((path, table))
    return found


def _numbers(path: Path, table: Any, columns: Any) -> np.ndarray:
    try:
        numbers = table[columns].to_numpy(float)
    except ValueError as error:
        raise damaged(path, f"has a word where a number belongs ({error})") from error
    if not np.isfinite(numbers).all():
        raise damaged(path, "has a number that is not finite")
    return numbers
