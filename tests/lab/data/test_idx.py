"""IDX files: whatever is not exactly the publisher's layout is refused by name."""

import contextlib
import gzip
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop_lab.data.images import FASHION_MNIST, MNIST, read_idx, read_idx_splits

TINY = replace(MNIST, train=6, test=4, side=3)
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx_bytes(shape: tuple[int, ...], content: bytes) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content


def contents() -> dict[str, bytes]:
    return {
        FILES[0]: idx_bytes((6, 3, 3), bytes(range(54))),
        FILES[1]: idx_bytes((6,), bytes([0, 1, 2, 3, 4, 9])),
        FILES[2]: idx_bytes((4, 3, 3), bytes(range(100, 136))),
        FILES[3]: idx_bytes((4,), bytes([9, 8, 7, 6])),
    }


def write(folder: Path, files: dict[str, bytes], *, compressed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("place", [".", "raw", "MNIST/raw"])
def test_both_splits_are_read_from_every_usual_place(tmp_path, place, compressed):
    write(tmp_path / place, contents(), compressed=compressed)
    splits = read_idx_splits(TINY, tmp_path)
    assert torch.equal(splits.train_inputs.reshape(-1), torch.arange(54, dtype=torch.uint8))
    assert splits.train_inputs.shape == (6, 1, 3, 3)
    assert splits.train_labels.tolist() == [0, 1, 2, 3, 4, 9]
    assert torch.equal(splits.test_inputs.reshape(-1), torch.arange(100, 136, dtype=torch.uint8))
    assert splits.test_labels.tolist() == [9, 8, 7, 6]
    assert splits.class_names == tuple("0123456789")


def test_the_labels_of_another_data_set_are_refused(tmp_path):
    count = len(FASHION_MNIST.first_labels)
    layout = replace(TINY, train=count)
    labels = idx_bytes((count,), bytes(FASHION_MNIST.first_labels))
    images = idx_bytes((count, 3, 3), bytes(9 * count))
    write(tmp_path, {**contents(), FILES[0]: images, FILES[1]: labels})
    with pytest.raises(sb.DataError, match=r"holds fashion-mnist, but mnist was asked for"):
        read_idx_splits(layout, tmp_path)
    same = replace(FASHION_MNIST, train=count, test=4, side=3)
    assert len(read_idx_splits(same, tmp_path).train_labels) == count


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path, {FILES[0]: contents()[FILES[0]]})
    with pytest.raises(sb.DataError, match=rf"lacks {FILES[1]} and {FILES[1]}\.gz,.*--root"):
        read_idx_splits(TINY, tmp_path)


DAMAGE = {
    "half a header": (lambda good: good[:9], r"\(6,\), but \(6, 3, 3\)"),
    "short": (lambda good: good[:-1], "truncated: 70 bytes"),
    "long": (lambda good: good + b"\0", "continues .* 70 bytes"),
    "labels": (lambda good: contents()[FILES[1]], "00 00 08 01.*00 00 08 03"),
    "huge": (lambda good: idx_bytes((2**32 - 1,) * 3, good[16:]), r"\(4294967295, "),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_refused_by_name_with_what_was_found(tmp_path, kind, compressed):
    damage, message = DAMAGE[kind]
    files = contents()
    write(tmp_path, {**files, FILES[0]: damage(files[FILES[0]])}, compressed=compressed)
    with pytest.raises(sb.DataError, match=message) as refusal:
        read_idx_splits(TINY, tmp_path)
    assert str(tmp_path / FILES[0]) in str(refusal.value)
    assert "--root" in str(refusal.value)


def test_a_label_out_of_range_is_refused_by_name(tmp_path):
    files = contents()
    write(tmp_path, {**files, FILES[3]: files[FILES[3]][:-1] + b"\x0a"})
    with pytest.raises(sb.DataError, match=rf"{FILES[3]} .*label 10, .* 0 to 9"):
        read_idx_splits(TINY, tmp_path)


@given(cut=st.integers(0, 10_000), flip=st.integers(0, 255))
def test_no_damage_to_a_compressed_file_goes_unnoticed(tmp_path_factory, cut, flip):
    path = tmp_path_factory.getbasetemp() / "file.gz"
    good = idx_bytes((6, 3, 3), bytes(range(54)))
    packed = bytearray(gzip.compress(good, mtime=0))
    packed[cut % len(packed)] ^= flip
    path.write_bytes(packed)
    with contextlib.suppress(sb.DataError):
        # The compressed file's time stamp and name may change, the content may not.
        assert read_idx(path, (6, 3, 3)).reshape(-1).tolist() == list(range(54))
    path.write_bytes(packed[: cut % len(packed)])
    with pytest.raises(sb.DataError, match=re.escape(str(path))):
        read_idx(path, (6, 3, 3))
