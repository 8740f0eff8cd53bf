"""Python's own sources: snippets by package, and windows of bytes, of files of one split each."""

import sys
import zlib

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab.data.datasets import load
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.data.source_code import (
    PACKAGES,
    read_help_bytes,
    read_source_bytes,
    read_source_code,
)


@pytest.fixture
def library(tmp_path):
    """A library whose packages have three files of 60, 40 and 20 lines, each of its own word."""
    for package in PACKAGES:
        for name, length in (("long", 60), ("middle", 40), ("short", 20)):
            path = tmp_path / package / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{package} = {name}_1\n\n" * length, encoding="utf-8")
        (tmp_path / package / "test").mkdir()  # which is left out
        (tmp_path / package / "test" / "big.py").write_text("more\n" * 500, encoding="utf-8")
    return tmp_path


def bucket(word):
    return zlib.crc32(word.encode()) % 1024


def test_each_package_of_this_python_is_a_class_with_examples_in_both_splits():
    data = load("source-code")
    assert data.class_names == PACKAGES
    assert data.train_inputs.shape[1:] == data.test_inputs.shape[1:] == (1024,)
    train, test = data.train_labels.bincount(), data.test_labels.bincount()
    assert train.min() > 50
    assert test.min() > 25
    assert 3000 < len(data.train_labels) < 6000


def test_the_second_of_three_files_by_length_is_tested_on_and_no_other(library):
    splits = read_source_code(library)
    assert (len(splits.train_labels), len(splits.test_labels)) == (10 * (6 + 2), 10 * 4)
    middle = bucket("middle")
    assert (splits.test_inputs[:, middle] > 0).all()
    assert not splits.train_inputs[:, middle].any()


def test_a_level_counts_a_word_up_to_three_times(library):
    (library / "xml" / "long.py").write_text(
        "\n".join(["once twice thrice", "twice thrice", *["thrice"] * 48]), encoding="utf-8"
    )
    splits = read_source_code(library)
    first = splits.train_inputs[splits.train_labels == PACKAGES.index("xml")][0]
    assert [first[bucket(word)].item() for word in ("once", "twice", "thrice")] == [85, 170, 255]
    assert int((first > 0).sum()) == 3


def test_a_python_without_sources_is_refused_by_the_folder(library):
    for path in (library / "json").glob("*.py"):
        path.unlink()
    with pytest.raises(sb.DataError, match=r"json has 0 source files"):
        read_source_code(library)


@pytest.mark.parametrize(("name", "count"), [("source-bytes", 4096), ("help-bytes", 2048)])
def test_a_window_s_labels_are_the_bytes_that_follow_each_of_its_own(name, count):
    data = load(name, limit=count)
    assert data.is_text
    assert data.train_inputs.shape == (count, 128)
    assert len(data.test_inputs) >= 256
    assert torch.equal(data.train_inputs[:, 1:].long(), data.train_labels[:, :-1])
    assert data.train_labels.min() >= 0
    assert data.train_labels.max() < data.classes == 256
    inputs, targets = next(iter(make_loader(data, batch_size=8, seed=0, shuffle=False)))
    assert torch.equal(inputs, data.train_inputs[:8].long())
    assert torch.equal(targets, data.train_labels[:8])


def test_windows_follow_each_other_and_every_eighth_module_is_held_out(tmp_path):
    for number in range(16):
        (tmp_path / f"m{number:02}.py").write_bytes(bytes([number]) * 128)
    splits = read_source_bytes(tmp_path)
    seen = [n for n in range(14) if n != 7]  # of the last file no byte has a window to follow
    assert splits.train_inputs.unique().tolist() == seen
    assert splits.train_inputs[:, 0].tolist() == seen
    assert splits.train_labels[:, 0].tolist() == seen
    assert splits.train_labels[:, -1].tolist() == [*seen[1:], 14]
    assert splits.test_inputs.unique().tolist() == [7]


def test_of_the_topics_of_help_every_eighth_stretch_is_held_out_and_no_paragraph_occurs_twice():
    stretch = 16 * 128
    chapters = {
        f"t{n}": "\n\n".join(f"{n} {m:03} " + "x" * 120 for m in range(40 - n)) for n in range(9)
    }
    whole = {"all": "\n\n".join(chapters.values()), **chapters, "again": "0   000 " + "x" * 120}
    splits = read_help_bytes(whole)
    text = whole["all"].encode()
    text = text[: (len(text) - 1) // 128 * 128]
    held_out = text[7 * stretch : 8 * stretch] + text[15 * stretch : 16 * stretch]
    assert bytes(splits.test_inputs.flatten().tolist()) == held_out
    rest = text[: 7 * stretch] + text[8 * stretch : 15 * stretch] + text[16 * stretch :]
    assert bytes(splits.train_inputs.flatten().tolist()) == rest


def test_a_python_without_topics_is_refused(monkeypatch):
    with pytest.raises(sb.DataError, match="are 5 bytes, but more than 16384 are needed"):
        read_help_bytes({"one": "short"})
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(sb.DataError, match=r"needs a Python with the topics of help\(\)"):
        read_help_bytes()
