"""Data sets by name: whole or limited, with the statistics of what is trained on."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.datasets import DATASETS, channel_statistics, load, read_digits
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.data.splits import Splits

NEED_NO_FOLDER = {"digits", "digits-three", "mnist1d", "breast-cancer", "table", "clicks"}
NEED_NO_FOLDER |= {"source-code", "source-bytes", "help-bytes"}
OF_MERGED = {"mnist-parity": "mnist", "cifar10-animals": "cifar10", "cifar100-coarse": "cifar100"}


def test_the_split_is_1437_and_360_with_a_fifth_of_each_class():
    splits = read_digits()
    assert splits.train_inputs.shape == (1437, 1, 8, 8)
    assert splits.test_inputs.shape == (360, 1, 8, 8)
    train, test = splits.train_labels.bincount(), splits.test_labels.bincount()
    assert ((train + test) / 5 - test).abs().max() < 1
    assert splits.class_names == tuple("0123456789")


@pytest.mark.parametrize(("name", "whole"), OF_MERGED.items())
def test_merged_classes_are_those_of_the_whole_data_set(name, whole, monkeypatch):
    classes = {"mnist": 10, "cifar10": 10, "cifar100": 100}[whole]
    names = tuple(map(str, range(classes)))
    labels, images = torch.arange(classes), torch.zeros(classes, 1, 2, 2, dtype=torch.uint8)
    made = Splits(images, labels, images, labels, names)
    monkeypatch.setattr(f"selective_backprop_lab.data.datasets._read_{whole}", lambda root: made)
    found = DATASETS[name](None)
    assert found.train_labels.equal(found.test_labels)
    counts = found.train_labels.bincount().tolist()
    assert counts == {"mnist": [5, 5], "cifar10": [4, 6], "cifar100": [5] * 20}[whole]
    assert len(found.class_names) == len(counts)
    if whole == "mnist":
        assert [found.class_names[label] for label in found.train_labels] == ["even", "odd"] * 5


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in NEED_NO_FOLDER])
def test_what_is_on_disk_needs_a_folder(name, tmp_path):
    source = OF_MERGED.get(name, name)
    for root, problem in (
        (None, "no folder"),
        (tmp_path / "nowhere", "nowhere is not a folder"),
        (tmp_path, re.escape(str(tmp_path))),
    ):
        with pytest.raises(sb.DataError, match=rf"{source} .*{problem}.*--root.*http"):
            load(name, root=root)


@given(
    st.lists(st.lists(st.integers(0, 255), min_size=8, max_size=8), min_size=1, max_size=20),
    st.integers(1, 7),
)
def test_channel_statistics_equal_those_of_the_levels_in_float64(rows, at_once):
    images = torch.tensor(rows, dtype=torch.uint8).view(-1, 2, 2, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("selective_backprop_lab.data.datasets._IMAGES_AT_ONCE", at_once)
        mean, std = channel_statistics(images)
    for channel in range(2):
        levels = images[:, channel].double() / 255
        spread = levels.std(correction=0).item()
        assert mean[channel] == pytest.approx(levels.mean().item(), abs=1e-12)
        constant = levels.min() == levels.max()
        assert std[channel] == (1 if constant else pytest.approx(spread, rel=1e-9))


def test_features_of_any_scale_are_standardised_and_composed(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(300, 3, generator=generator) * torch.tensor([1e-3, 1.0, 0.0])
    features = features.double() + 5000.0
    labels = (features[:, 1] > 5000.0).long()

    def read_plane(root):
        return Splits(features[:200], labels[:200], features[200:], labels[200:], ("low", "high"))

    monkeypatch.setitem(DATASETS, "plane", read_plane)
    data = Composition(copies=1.0, noise=0.1)(load("plane"))
    inputs, _ = next(iter(make_loader(data, batch_size=200, seed=0)))
    assert inputs.mean(0).tolist() == pytest.approx([0.0] * 3, abs=1e-3)
    assert inputs.std(0, correction=0).tolist() == pytest.approx([1.0, 1.0, 0.0], abs=1e-3)
