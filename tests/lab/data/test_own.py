"""Data of the user's own: what a function returns becomes examples, or is refused with a reason."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from selective_backprop_lab.bench.workload import bench_recipe
from selective_backprop_lab.data.datasets import load, read
from selective_backprop_lab.recipe import RECIPES, find_recipe

LEVELS = np.random.default_rng(0).integers(0, 256, (9, 3, 4, 4), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
FEATURES = np.random.default_rng(1).normal(5.0, 3.0, (9, 4))


@pytest.fixture
def returned(monkeypatch):
    """Returns how a data set loads, under options, whose function returns a value."""
    module = ModuleType("data_returned")
    monkeypatch.setitem(sys.modules, "data_returned", module)
    read.cache_clear()

    def load_returned(value: Any, **options: Any) -> Any:
        read.cache_clear()
        vars(module)["load"] = lambda: value
        return load("data_returned:load", **options)

    yield load_returned
    read.cache_clear()


def both(inputs: Any, labels: Any = LABELS) -> Any:
    """Return six examples to train on and three to test on, as arrays or tensors."""
    return (inputs[:6], labels[:6]), (inputs[6:], labels[6:])


def listed(inputs: Any, labels: Any = LABELS) -> Any:
    """Return the same as data sets of pairs."""
    return [list(zip(*split, strict=True)) for split in both(inputs, labels)]


def pictures(mode: str = "RGB") -> list[Image.Image]:
    return [Image.fromarray(levels.transpose(1, 2, 0)).convert(mode) for levels in LEVELS]


FLOATS = torch.from_numpy(LEVELS) / 255  # as ToTensor makes them
IMAGES = {
    "arrays": both(LEVELS),
    "tensors": both(torch.from_numpy(LEVELS), torch.from_numpy(LABELS)),
    "floats": both(FLOATS),
    "doubles": both(FLOATS.double().numpy(), LABELS.astype(np.uint8)),
    "channels last": both(LEVELS.transpose(0, 2, 3, 1)),
    "mirrored twice": both(LEVELS[:, :, ::-1].copy()[:, :, ::-1]),
    "data sets": [TensorDataset(x, torch.from_numpy(y)) for x, y in both(FLOATS)],
    "pairs of arrays": listed(LEVELS.transpose(0, 2, 3, 1)),
    "pairs of tensors": listed(FLOATS, [int(label) for label in LABELS]),
    "pictures": listed(pictures()),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_images_of_every_kind_become_the_same_bytes(returned, kind):
    data = returned(IMAGES[kind])
    assert data.class_names == ("0", "1", "2")
    for inputs, labels, rows in (
        (data.train_inputs, data.train_labels, slice(0, 6)),
        (data.test_inputs, data.test_labels, slice(6, 9)),
    ):
        assert inputs.is_contiguous()
        assert inputs.dtype == torch.uint8
        assert np.array_equal(inputs, LEVELS[rows])
        assert labels.dtype == torch.int64
        assert np.array_equal(labels, LABELS[rows])


@pytest.mark.parametrize("mode", ["L", "1"])
def test_grey_images_have_one_channel_whether_they_name_it_or_not(returned, mode):
    expected = np.stack([np.asarray(picture.convert("L")) for picture in pictures(mode)])
    for value in (listed(pictures(mode)), both(expected), both(expected[..., None])):
        data = returned(value)
        assert data.channels == 1
        assert np.array_equal(data.train_inputs[:, 0], expected[:6])


@pytest.mark.parametrize("value", [both(FEATURES), listed(FEATURES), both(FEATURES.astype(">f4"))])
def test_features_are_standardised(returned, value):
    data = returned(value)
    assert not data.is_images
    expected = (FEATURES - FEATURES[:6].mean(0)) / FEATURES[:6].std(0)
    assert np.allclose(data.train_inputs, expected[:6], atol=1e-5)
    assert np.allclose(data.test_inputs, expected[6:], atol=1e-5)


NORMALISED = (FLOATS - 0.5) / 0.25
LARGER = np.zeros((5, 5, 3), dtype=np.uint8)
REFUSED = {
    "no pair": (None, "returned a NoneType: return "),
    "loader": ([DataLoader(each) for each in listed(FEATURES)], "train is a DataLoader"),
    "three each": ([[(1, 2, 3)]] * 2, "train, example 0 is a tuple of int, int, int"),
    "empty": (([], []), "train has no examples"),
    "unequal": (((FEATURES, LABELS[:5]),) * 2, r"train has 9 inputs and labels of shape \(5,\)"),
    "real labels": (both(FEATURES, LABELS / 2), "train has labels of torch.float64"),
    "real label": (listed(FEATURES, LABELS / 2), r"train, example 0 has the label .*0\.0"),
    "negative": (both(FEATURES, LABELS - 1), "train has labels of torch.int64, the lowest -1"),
    "named each": (listed(FEATURES, list("catdogcat")), "train, example 0 has the label 'c'"),
    "not numbered": (both(FEATURES, 1000 * LABELS), "9 examples with labels up to 2000"),
    "numbered from 1": (both(FEATURES, LABELS + 1), "has labels from 1 to 3: .*Subtract 1"),
    "normalised": (both(NORMALISED), "train has images of floats from -2 to 2: return them as by"),
    "oblong": (both(LEVELS[:, :, :3]), r"train has inputs of shape \(3, 3, 4\) and torch.uint8"),
    "not finite": (
        both(np.where(FEATURES > 5, np.nan, FEATURES)),
        "train has features that are not finite",
    ),
    "several sizes": (
        [[(LEVELS[0], 0), (LARGER, 1)], [(LEVELS[0], 0)]],
        r"train, example 1 has shape \(3, 5, 5\) and torch.uint8, but example 0 has \(3, 4, 4\)",
    ),
    "other size to test on": (
        (both(FEATURES)[0], (FEATURES[6:, :2], LABELS[6:])),
        r"test has shape \(2,\) .*but train has \(4,\)",
    ),
    "transparent": (listed(pictures("RGBA")), r"example 0 is a picture of mode RGBA, .*convert"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_are_no_examples_is_refused_with_what_was_found(returned, kind):
    value, message = REFUSED[kind]
    with pytest.raises(sb.DataError, match=message) as refusal:
        returned(value)
    assert str(refusal.value).startswith("data_returned:load")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json:no_such_function", "no_such_function in json is missing, .* without arguments"),
        ("mnist:load", "--root"),  # of the lab, whatever follows
    ],
)
def test_a_name_must_be_found(name, message):
    with pytest.raises((sb.ConfigurationError, sb.DataError), match=message):
        load(name)


@pytest.mark.parametrize("find", [find_recipe, bench_recipe])
@pytest.mark.parametrize(
    ("inputs", "like"),
    [(FEATURES, "table"), (LEVELS, "digits"), (np.zeros((9, 1, 16, 16), dtype=np.uint8), "svhn")],
)
def test_they_are_trained_on_as_data_of_their_shape_are(returned, find, inputs, like):
    returned(both(inputs))
    recipe = find("data_returned:load")
    assert recipe.data == "data_returned:load"
    assert {**recipe.config(), "data": like} == RECIPES[like].config()
