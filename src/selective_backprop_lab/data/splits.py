"""The two splits that every reader of data returns, from which folder, and how to redraw them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.random_bits import drawn_order, key_of
from selective_backprop_lab.shapes import Bool, Int64, Num

# Not an option, because a limited training set is the same for all seeds of a comparison.
_ORDER_KEY = key_of(0)
_REDRAWN = int.from_bytes(b"split")

Part = tuple[Num[Tensor, "example ..."], Int64[Tensor, " example *token"]]


class Splits(NamedTuple):
    """Inputs and class numbers from 0, in the publisher's order.

    Bytes are grey levels of square images, real numbers are features, and other integers are
    categories, or tokens that each have a label.
    """

    train_inputs: Num[Tensor, "train ..."]
    train_labels: Int64[Tensor, " train *token"]
    test_inputs: Num[Tensor, "test ..."]
    test_labels: Int64[Tensor, " test *token"]
    class_names: tuple[str, ...]
    unit: float = 1.0  # features are first divided by this; images are always divided by 255
    # Whether each channel or feature gets mean 0 and deviation 1; rare categories would be huge.
    standardised: bool = True
    # Which training examples may become test examples: no copies of others. None: all may.
    tested: Bool[Tensor, " train"] | None = None


def damaged(path: Path, verdict: str) -> sb.DataError:
    """Return the error for a file that is damaged or not the publisher's."""
    return sb.DataError(
        f"{path} {verdict}. This is not the publisher's file: download it again, or pass another "
        "folder with --root"
    )


def find_folder(
    root: Path | None, *, name: str, folders: Sequence[str], files: Sequence[str], source: str
) -> Path:
    """Return the first of the `folders` under `root` that holds any of the `files`."""
    wanted = " or ".join(files)
    places = [root / folder for folder in folders] if root else []
    for place in places:
        if any((place / file).is_file() for file in files):
            return place
    why = f"needs {wanted}, which is in none of {', '.join(map(str, places))}"
    if root is None:
        why = "is read from disk, but no folder was named"
    elif not root.is_dir():
        why = f"cannot be read: {root} is not a folder"
    raise sb.DataError(
        f"{name} {why}. Pass the folder that holds {wanted} with --root (root= in Python); the "
        f"files are published at {source}"
    )


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of several files that a data set's folder holds."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise sb.DataError(
        f"{folder} lacks {' and '.join(names)}, but holds other files of the data set. Download "
        "it too, or pass another folder with --root"
    )


def limited(splits: Splits, limit: int) -> Splits:
    """Return the splits with only the first `limit` training examples in stratified order."""
    total, classes = len(splits.train_labels), len(splits.class_names)
    if splits.train_labels.ndim > 1:
        classes = 1
    if not classes <= limit <= total:
        raise sb.ConfigurationError(
            f"limit is {limit}, but must lie between {classes} (one example of each class) and "
            f"{total} (the whole training set). Leave it out to train on everything."
        )
    return _training_on(splits, stratified_order(splits.train_labels)[:limit])


def redrawn(splits: Splits, seed: int) -> Splits:
    """Return splits of the same sizes, with all examples redistributed at random by a seed."""
    if splits.train_labels.ndim > 1:
        raise sb.ConfigurationError("text cannot be redistributed: its parts continue each other")
    tested = splits.tested
    if tested is not None:
        tested = torch.cat([tested, tested.new_ones(len(splits.test_labels))])
    inputs, labels = torch.cat(splits[:3:2]), torch.cat(splits[1:4:2])
    order = drawn_order(key_of(_REDRAWN, seed), len(labels))
    every = splits._replace(train_inputs=inputs, train_labels=labels, tested=tested)
    return _split(every, order, len(splits.train_labels))


def held_out(splits: Splits) -> Splits:
    """Return splits that test on held-out training examples, at most a fifth of them."""
    most = len(splits.train_labels) // 5
    count = len(splits.train_labels) - min(most, len(splits.test_labels))
    return _split(splits, stratified_order(splits.train_labels), count)


def _split(splits: Splits, order: Int64[Tensor, " train"], count: int) -> Splits:
    if splits.tested is not None:  # what may be tested on comes last
        order = order[splits.tested[order].long().argsort(stable=True)]
    kept, held = order.tensor_split([count])
    return _training_on(splits, kept)._replace(
        test_inputs=splits.train_inputs[held], test_labels=splits.train_labels[held]
    )


def _training_on(splits: Splits, rows: Tensor) -> Splits:
    parts = ("train_inputs", "train_labels", "tested")
    known = {name: part for name in parts if (part := getattr(splits, name)) is not None}
    return splits._replace(**{name: part[rows] for name, part in known.items()})


def of_classes(splits: Splits, chosen: str) -> Splits:
    """Return the splits with only some classes, such as `5-9`, renumbered from 0."""
    if splits.train_labels.ndim > 1:
        raise sb.ConfigurationError(
            f"the classes {chosen!r} are asked for, but text has a label for each token and no "
            "classes of examples; leave the classes out"
        )
    found = re.fullmatch(r"(\d+)-(\d+)", chosen)
    first, last = map(int, found.groups()) if found else (0, 0)
    if not first < last < len(splits.class_names):
        raise sb.ConfigurationError(
            f"the classes {chosen!r} are asked for: write the first and the last, such as 0-4, of "
            f"the classes 0 to {len(splits.class_names) - 1}"
        )

    within = [(first <= labels) & (labels <= last) for labels in splits[1:4:2]]
    tests = splits.test_inputs[within[1]], splits.test_labels[within[1]] - first
    found = _training_on(splits, within[0])._replace(
        test_inputs=tests[0], test_labels=tests[1], class_names=splits.class_names[first : last + 1]
    )
    return found._replace(train_labels=found.train_labels - first)


def merged(splits: Splits, groups: Sequence[int], names: tuple[str, ...]) -> Splits:
    """Return the splits with classes merged: class `k` becomes `groups[k]`, called by `names`."""
    into = torch.tensor(groups)
    return splits._replace(
        train_labels=into[splits.train_labels],
        test_labels=into[splits.test_labels],
        class_names=names,
    )


def stratified_order(labels: Int64[Tensor, " example *token"]) -> Int64[Tensor, " example"]:
    """Order examples so that every prefix holds each class's share, nearly to one example."""
    labels = labels if labels.ndim == 1 else torch.zeros(len(labels), dtype=torch.int64)
    order = drawn_order(_ORDER_KEY, len(labels))
    position = torch.empty(len(labels), dtype=torch.float64)
    for label in labels.unique():
        members = order[labels[order] == label]
        position[members] = (torch.arange(len(members), dtype=torch.float64) + 0.5) / len(members)
    # Examples of equally large classes tie, and the random order breaks the tie.
    return order[position[order].argsort(stable=True)]
