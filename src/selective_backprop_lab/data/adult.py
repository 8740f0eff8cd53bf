"""Read UCI Adult, "Census Income", as published: a table of mixed columns."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from selective_backprop_lab.data.folders import damaged, find_file, find_folder
from selective_backprop_lab.data.splits import Splits

_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
)
_ROWS = {"adult.data": 32_561, "adult.test": 16_281}
_CLASSES = ("<=50K", ">50K")


def read_adult(root: Path | None) -> Splits:
    """Return 48,842 adults, 16,281 of them to test on, with 6 numbers and 8 categories each.

    A category becomes one feature for each of its values, 0 or 1; a missing value, `?`, is a value
    too. The numbers have mean 0 and deviation 1 over the training part. The class says whether the
    income is above 50,000 dollars a year. It is for a quarter of the adults.

    Source:
        Becker and Kohavi 1996, Adult, UCI Machine Learning Repository, doi:10.24432/C5XW20.
    """
    folder = find_folder(
        root,
        name="adult",
        folders=("adult", "."),
        files=tuple(_ROWS),
        source="https://archive.ics.uci.edu/dataset/2/adult",
    )
    import pandas as pd  # slow

    parts = [_read(find_file(folder, name), rows) for name, rows in _ROWS.items()]
    table = pd.concat(parts)
    numbers = table[[*_NUMBERS]].to_numpy(float)
    train = numbers[: len(parts[0])]
    categories = pd.get_dummies(table.drop(columns=[*_NUMBERS, "income"]), dtype=float)
    features = np.concatenate([(numbers - train.mean(0)) / train.std(0), categories], axis=1)
    inputs, labels = (
        torch.from_numpy(each).split([len(part) for part in parts])
        for each in (features.astype(np.float32), table.income.to_numpy(np.int64, copy=True))
    )
    # Standardising would make rare categories huge.
    return Splits(inputs[0], labels[0], inputs[1], labels[1], _CLASSES, standardised=False)


def _read(path: Path, rows: int) -> Any:
    import pandas as pd  # slow

    try:
        table = pd.read_csv(
            path, names=[*_COLUMNS], skipinitialspace=True, comment="|", na_filter=False
        )
        table[[*_NUMBERS]] = table[[*_NUMBERS]].astype(float)
        # Labels of the test part end in a full stop.
        labels = table.income.str.removesuffix(".").map(
            {name: i for i, name in enumerate(_CLASSES)}
        )
    except (ValueError, AttributeError, pd.errors.ParserError) as error:
        raise damaged(path, f"cannot be read as {len(_COLUMNS)} columns ({error})") from error
    if len(table) != rows or labels.isna().any():
        raise damaged(path, f"has {int(labels.notna().sum()):,} labelled rows, not {rows:,}")
    return table.assign(income=labels.astype(int))
