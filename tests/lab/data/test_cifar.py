"""CIFAR's pickles: every honest writer is read, and nothing that a pickle names is run."""

import os
import pickle
import re
import struct
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

import selective_backprop as sb
from selective_backprop_lab.data.images import CIFAR10, CIFAR100, read_cifar_splits, unpickle

ROWS = 3
TINY10 = replace(CIFAR10, train_rows=ROWS, test_rows=ROWS)
TINY100 = replace(CIFAR100, train_rows=ROWS, test_rows=ROWS)


def pixels(start: int) -> np.ndarray:
    return (np.arange(start, start + ROWS * 3072) % 251).astype(np.uint8).reshape(ROWS, 3072)


def batch(number: int) -> dict:
    return {"batch_label": "a batch", "labels": [number, 1, 9], "data": pixels(number)}


def meta() -> dict:
    return {"num_cases_per_batch": ROWS, "label_names": list("abcdefghij"), "num_vis": 3072}


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2's cPickle wrote, protocol 2: strings are bytes, keys too."""

    def save_string(self, value: str | bytes) -> None:
        raw = value.encode() if isinstance(value, str) else value
        self.write(b"T" + struct.pack("<I", len(raw)) + raw)
        self.memoize(value)

    dispatch = {**pickle._Pickler.dispatch, str: save_string, bytes: save_string}  # noqa: RUF012


def dump_python2(value: object, numpy: bytes = b"numpy.core") -> bytes:
    Python2Pickler(file := BytesIO(), protocol=2).dump(value)
    return file.getvalue().replace(b"numpy._core", b"numpy.core").replace(b"numpy.core", numpy)


WRITERS = {
    "python 2": dump_python2,
    "python 2, numpy 2": lambda record: dump_python2(record, b"numpy._core"),
    "protocol 4": lambda record: pickle.dumps(record, protocol=4),
}


def write10(folder: Path, dump=WRITERS["protocol 4"]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate((*CIFAR10.train_files, "test_batch")):
        (folder / name).write_bytes(dump(batch(number)))
    (folder / "batches.meta").write_bytes(dump(meta()))
    return folder


@pytest.mark.parametrize("place", [".", "cifar-10-batches-py"])
@pytest.mark.parametrize("writer", WRITERS)
def test_cifar10_is_read_as_every_python_wrote_it(tmp_path, writer, place):
    write10(tmp_path / place, WRITERS[writer])
    splits = read_cifar_splits(TINY10, tmp_path)
    expected = np.concatenate([pixels(number) for number in range(5)]).reshape(-1, 3, 32, 32)
    assert np.array_equal(splits.train_inputs, expected)
    assert splits.train_labels.tolist() == [label for n in range(5) for label in (n, 1, 9)]
    assert np.array_equal(splits.test_inputs, pixels(5).reshape(-1, 3, 32, 32))
    assert splits.test_labels.tolist() == [5, 1, 9]
    assert splits.class_names == tuple("abcdefghij")


def test_cifar100_is_read_with_its_fine_labels(tmp_path):
    names = [f"class_{number}" for number in range(100)]
    record = {"fine_labels": [99, 0, 50], "coarse_labels": [1, 2, 3], "data": pixels(0)}
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "meta").write_bytes(dump_python2({"fine_label_names": names}))
    for name in ("train", "test"):
        (folder / name).write_bytes(dump_python2(record))
    splits = read_cifar_splits(TINY100, tmp_path)
    assert splits.train_labels.tolist() == splits.test_labels.tolist() == [99, 0, 50]
    assert np.array_equal(splits.train_inputs, pixels(0).reshape(-1, 3, 32, 32))
    assert splits.class_names == tuple(names)


class Named:
    """Pickles as a call of whatever it is given."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("where", ["key", "value", "label", "whole"])
def test_a_pickle_that_would_run_something_is_refused_and_not_run(tmp_path, protocol, where):
    write10(tmp_path)
    marker = tmp_path / "was run"
    bomb = Named(os.mkdir, str(marker))
    record = {
        "key": batch(0) | {bomb: 1},
        "value": batch(0) | {"data": bomb},
        "label": batch(0) | {"labels": [bomb, 1, 2]},
        "whole": bomb,
    }[where]
    path = tmp_path / "data_batch_3"
    path.write_bytes(pickle.dumps(record, protocol=protocol))
    with pytest.raises(sb.DataError, match=r"asks for \w+\.mkdir,") as refusal:
        read_cifar_splits(TINY10, tmp_path)
    assert str(path) in str(refusal.value)
    assert not marker.exists()
    pickle.loads(path.read_bytes())  # an ordinary reader does run it
    assert marker.exists()


DAMAGE = {
    "too few rows": {"data": pixels(0)[:2]},
    "floats": {"data": pixels(0).astype(np.float32)},
    "no data": {"data": None},  # no such entry, that is
    "too few labels": {"labels": [1, 2]},
    "label too high": {"labels": [1, 10, 2]},
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_batch_that_is_not_what_it_should_be_is_refused_by_name(tmp_path, kind):
    write10(tmp_path)
    (damaged,) = DAMAGE[kind]
    expected = {"data": "3 x 3072 bytes", "labels": "3 labels|no whole numbers from 0 to 9"}
    path = tmp_path / "data_batch_2"
    record = {key: value for key, value in (batch(0) | DAMAGE[kind]).items() if value is not None}
    path.write_bytes(pickle.dumps(record, protocol=4))
    with pytest.raises(sb.DataError, match=expected[damaged]) as refusal:
        read_cifar_splits(TINY10, tmp_path)
    assert str(path) in str(refusal.value)
    assert "--root" in str(refusal.value)


SMALL = pickle.dumps({"labels": [1, 2], "data": np.zeros((2, 4), np.uint8)}, protocol=4)
OLD = dump_python2({"labels": [1, 2], "data": np.zeros((2, 4), np.uint8)})


@pytest.mark.parametrize("good", [SMALL, OLD])
def test_a_pickle_that_ends_early_or_goes_on_is_refused(tmp_path, good):
    path = tmp_path / "batch"
    for content in (*(good[:length] for length in range(len(good))), good + b"x"):
        path.write_bytes(content)
        with pytest.raises(sb.DataError, match=re.escape(str(path))):
            unpickle(path)
