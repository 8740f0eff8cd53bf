"""Data that are made: as large and as hard as said, and the same on every platform."""

import hashlib

import numpy as np
import pytest
import torch

from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.datasets import load
from selective_backprop_lab.data.loader import make_loader

DIGESTS = {
    "mnist1d": "45212d82aa917d86",
    "breast-cancer": "316f148812ce42c4",
    "table": "9775bd52db62ef37",
    "clicks": "75949e7d4f8b2a9a",
}


def levels_of(part):
    return part.to(torch.uint8) if part.is_floating_point() else part


@pytest.mark.parametrize("name", DIGESTS)
def test_the_data_never_change_between_versions_or_platforms(name):
    data = load(name)
    tensors = (data.train_inputs, data.train_labels, data.test_inputs, data.test_labels)
    content = b"".join(levels_of(each).numpy().tobytes() for each in tensors)
    assert hashlib.sha256(content).hexdigest()[:16] == DIGESTS[name]


def test_clicks_have_one_category_of_each_field_by_zipfs_law_and_2_percent_positives():
    data = load("clicks")
    levels = np.concatenate([data.train_inputs.numpy(), data.test_inputs.numpy()])
    assert set(np.unique(levels)) == {0, 255}
    first = 0
    for size in (8, 16, 32, 64, 128, 256):
        counts = (levels[:, first : first + size] > 0).sum(0)
        assert counts.sum() == 30_000
        expected = 30_000 / np.arange(1, size + 1) / (1 / np.arange(1, size + 1)).sum()
        assert (np.abs(counts - expected) < 6 * np.sqrt(expected)).all()
        first += size
    labels = torch.cat([data.train_labels, data.test_labels])
    assert int(labels.sum()) == 600


def test_indicators_are_noughts_and_ones_in_training_whatever_is_made_of_them():
    data = Composition(copies=1.0, places=2000)(load("clicks"))
    images, _ = next(iter(make_loader(data, batch_size=64, seed=0)))
    assert set(images.unique().tolist()) == {0.0, 1.0}
