"""SVHN's MATLAB files: right, or refused with what is wrong and what to do."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

import selective_backprop as sb
from selective_backprop_lab.data.images import SVHN, read_svhn_splits

TRAIN, EXTRA, TEST = 12, 5, 4
TINY = replace(SVHN, train=(("train_32x32.mat", TRAIN),), test=("test_32x32.mat", TEST))
TINY_EXTRA = replace(TINY, name="svhn-extra", train=(*TINY.train, ("extra_32x32.mat", EXTRA)))


def digits(count: int, *, seed: int = 0) -> dict[str, Any]:
    """Return a file's variables: pixels of height, width, channel and example; 10 for a 0."""
    random = np.random.default_rng(seed)
    return {
        "X": random.integers(0, 256, (32, 32, 3, count), dtype=np.uint8),
        "y": np.resize(np.arange(10, 0, -1, dtype=np.uint8), (count, 1)),
    }


def write(folder: Path, **changed: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, count) in enumerate({"train": TRAIN, "extra": EXTRA, "test": TEST}.items()):
        savemat(
            folder / f"{name}_32x32.mat",
            changed.get(name, digits(count, seed=seed)),
            do_compression=True,
        )
    return folder


@pytest.mark.parametrize("folder", [".", "svhn", "SVHN"])
def test_every_pixel_and_digit_comes_out_where_it_belongs(tmp_path, folder):
    write(tmp_path / folder)
    splits = read_svhn_splits(TINY, tmp_path)
    for images, labels, variables in (
        (splits.train_inputs, splits.train_labels, digits(TRAIN, seed=0)),
        (splits.test_inputs, splits.test_labels, digits(TEST, seed=2)),
    ):
        assert images.shape == (len(labels), 3, 32, 32)
        assert images.is_contiguous()
        assert np.array_equal(images.permute(2, 3, 1, 0), variables["X"])
        assert np.array_equal(labels, variables["y"][:, 0] % 10)
    assert splits.test_labels.tolist() == [0, 9, 8, 7]
    assert splits.class_names == tuple("0123456789")


def test_extra_examples_follow_those_of_the_training_set(tmp_path):
    write(tmp_path)
    plain, extra = read_svhn_splits(TINY, tmp_path), read_svhn_splits(TINY_EXTRA, tmp_path)
    assert len(extra.train_labels) == TRAIN + EXTRA
    assert torch.equal(extra.train_inputs[:TRAIN], plain.train_inputs)
    assert np.array_equal(extra.train_inputs[TRAIN:].permute(2, 3, 1, 0), digits(5, seed=1)["X"])
    assert torch.equal(extra.test_inputs, plain.test_inputs)


def test_labels_of_doubles_are_read_too(tmp_path):
    variables = digits(TRAIN)
    write(tmp_path, train=variables | {"y": variables["y"].astype(np.float64)})
    expected = torch.from_numpy(variables["y"].reshape(-1) % 10)
    assert torch.equal(read_svhn_splits(TINY, tmp_path).train_labels, expected.long())


GOOD = digits(TRAIN)
DAMAGE = {
    "no pixels": ({"y": GOOD["y"]}, r"'X', .*\(32, 32, 3, 12\)"),
    "wide pixels": (GOOD | {"X": GOOD["X"].astype(np.uint16)}, r"uint16 of \(32, 32, 3, 12\)"),
    "zero": (GOOD | {"y": GOOD["y"] - 1}, "label 0, .* 1 to 10"),
    "not a number": (GOOD | {"y": np.full((TRAIN, 1), np.nan)}, "label nan, "),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_not_svhn_is_refused_by_name_with_what_was_found(tmp_path, kind):
    variables, message = DAMAGE[kind]
    write(tmp_path, train=variables)
    with pytest.raises(sb.DataError, match=message) as refusal:
        read_svhn_splits(TINY, tmp_path)
    assert str(tmp_path / "train_32x32.mat") in str(refusal.value)
    assert "--root" in str(refusal.value)


def test_what_is_no_matlab_file_is_refused_by_name(tmp_path):
    path = write(tmp_path) / "test_32x32.mat"
    for content in (b"<html>no such file</html>", b"MATLAB 7.3 MAT-file" + b" " * 200):
        path.write_bytes(content)
        with pytest.raises(sb.DataError, match=rf"{re.escape(str(path))} .*--root"):
            read_svhn_splits(TINY, tmp_path)
