import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from fixture_batches import same
from fixture_lab import blank_data, few_digits
from fixture_runs import fixture_history

import selective_backprop as sb
from selective_backprop_lab.data.datasets import thumbnails
from selective_backprop_lab.records.example_history import (
    examples_path,
    extremes,
    read_examples,
    write_examples,
)


@pytest.mark.parametrize(
    "history",
    [fixture_history(), fixture_history(portrait_image=None, label_clean=np.zeros(12, np.int64))],
    ids=["images", "flipped labels"],
)
def test_a_history_is_read_as_it_was_written(tmp_path, history):
    record = tmp_path / "arm-seed0-0123.jsonl"
    path = write_examples(history, record)
    assert path == examples_path(record) == tmp_path / "arm-seed0-0123.examples.npz"
    assert same(history, read_examples(record))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    path = write_examples(fixture_history(), tmp_path / "a.jsonl")
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:size])
        with pytest.raises(sb.RecordError, match=r"a\.examples\.npz: damaged"):
            read_examples(tmp_path / "a.jsonl")


def test_a_file_that_holds_code_is_refused(tmp_path):
    np.savez(tmp_path / "a.examples.npz", version=np.array([print], dtype=object))
    with pytest.raises(sb.RecordError, match="damaged"):
        read_examples(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": np.int64(7)}, "version 7, but this code reads version 1"),
        ({"scored": None}, "scored"),
        ({"scored": np.zeros(11, np.int32)}, r"scored is int32 of shape \(11,\), .*example 12"),
        ({"label": np.zeros(12)}, "label is float64 .*int64"),
        ({"label": np.arange(12)}, "label goes from 0 to 11, expected 0 to 2"),
        ({"passes": np.array("many")}, "many"),
    ],
    ids=range(6),
)
def test_other_versions_and_arrays_that_do_not_fit_are_refused(tmp_path, changes, words):
    path = write_examples(fixture_history(), tmp_path / "a.jsonl")
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(sb.RecordError, match=rf"a\.examples\.npz: .*{words}"):
        read_examples(tmp_path / "a.jsonl")


def test_a_small_file_that_would_fill_the_memory_is_refused(tmp_path):
    path = tmp_path / "a.examples.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("label.npy", b"")
        file.infolist()[0].file_size = 2**31  # what the directory of a file of zeros would say
    with pytest.raises(sb.RecordError, match=r"a\.examples\.npz: .*2,048 MiB"):
        read_examples(tmp_path / "a.jsonl")


def test_examples_are_ordered_by_selections_and_then_by_loss():
    selected = np.array([2, 0, 2, 5, 0, 0])
    loss = np.array([0.1, 0.3, 0.9, 0.2, 0.4, np.nan])
    orders = extremes(selected, loss)
    assert orders["most"].tolist() == [3, 2, 0, 4, 1, 5]
    assert orders["least"].tolist() == [1, 4, 5, 0, 2, 3]


def test_a_large_image_is_shown_small_and_a_small_one_as_it_is():
    data = few_digits()
    small = thumbnails(data, np.array([3, 0]))
    assert small.shape == (2, 8, 8, 1)
    assert small[0, :, :, 0].tolist() == data.train_inputs[3, 0].tolist()
    images = torch.zeros(2, 3, 64, 64, dtype=torch.uint8)
    images[1, 2, :2, :2] = torch.tensor([[10, 20], [30, 40]], dtype=torch.uint8)
    two = replace(blank_data(3, 64), train_inputs=images)
    large = thumbnails(two, np.array([1]))
    assert large.shape == (1, 32, 32, 3)
    assert large[0, 0, 0].tolist() == [0, 0, 25]
    assert large.sum() == 25
