"""Data that are made: as large and as hard as said, and the same on every platform."""

import hashlib

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


def test_indicators_are_noughts_and_ones_in_training_whatever_is_made_of_them():
    data = Composition(copies=1.0, places=2000)(load("clicks"))
    images, _ = next(iter(make_loader(data, batch_size=64, seed=0)))
    assert set(images.unique().tolist()) == {0.0, 1.0}
