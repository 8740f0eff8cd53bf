"""Data of the Hugging Face hub, through a package that stands in for `datasets`."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as pil

import selective_backprop as sb
from selective_backprop_lab.bench.workload import bench_recipe
from selective_backprop_lab.data.datasets import load
from selective_backprop_lab.recipe import RECIPES, find_recipe


@dataclass
class Image:
    """A column of pictures, as the package describes one."""


@dataclass
class ClassLabel:
    names: list[str] = field(default_factory=lambda: ["cat", "dog", "bird"])


@dataclass
class Value:
    dtype: str = "string"


@dataclass
class Split:
    features: Mapping[str, Any]
    rows: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def select_columns(self, names: list[str]) -> "Split":
        rows = [{name: row[name] for name in names} for row in self.rows]
        return Split({name: self.features[name] for name in names}, rows)


PLAIN = {"img": Image(), "label": ClassLabel(), "text": Value()}


def picture(seed: int, mode: str = "RGB", size: tuple[int, int] = (4, 4)) -> pil.Image:
    channels = {"RGB": 3, "RGBA": 4}.get(mode, 1)
    levels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], channels), dtype=np.uint8)
    if mode == "P":
        return pil.fromarray(levels[:, :, 0]).convert("RGB").quantize(8)
    return pil.fromarray(levels.squeeze()).convert(mode)


def split_of(
    count: int, first: int = 0, features: Mapping[str, Any] = PLAIN, **kinds: Any
) -> Split:
    rows = [
        {"img": picture(first + row, **kinds), "label": row % 3, "text": "a caption"}
        for row in range(count)
    ]
    return Split(features, rows)


@pytest.fixture
def hub(monkeypatch) -> ModuleType:
    """Put a package in place of `datasets` that gives what `found` holds, and keeps its calls."""
    package = ModuleType("datasets")
    package.Image, package.ClassLabel = Image, ClassLabel
    package.found = {"train": split_of(6), "test": split_of(3, 6)}
    package.calls = []

    def load_dataset(*arguments: Any, **options: Any) -> Any:
        package.calls.append((arguments, options))
        return package.found

    package.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", package)
    return package


def test_pictures_and_classes_come_as_they_are(hub):
    data = load("hub:someone/pets")
    assert data.name == "hub:someone/pets"
    assert data.class_names == ("cat", "dog", "bird")
    assert (data.channels, data.image_size, data.classes) == (3, 4, 3)
    for images, labels, first in (
        (data.train_inputs, data.train_labels, 0),
        (data.test_inputs, data.test_labels, 6),
    ):
        assert images.dtype == torch.uint8
        assert images.is_contiguous()
        for row in range(len(labels)):
            expected = np.asarray(picture(first + row)).transpose(2, 0, 1)
            assert np.array_equal(images[row], expected)
        assert labels.tolist() == [row % 3 for row in range(len(labels))]


@pytest.mark.parametrize(
    ("name", "path", "configuration"),
    [
        ("hub:cifar10", "cifar10", None),
        ("hub:ufldl-stanford/svhn:cropped_digits", "ufldl-stanford/svhn", "cropped_digits"),
    ],
)
def test_name_configuration_and_folder_reach_the_package(hub, tmp_path, name, path, configuration):
    load(name)
    load(name, root=tmp_path)
    assert hub.calls == [
        ((path, configuration), {"cache_dir": None}),
        ((path, configuration), {"cache_dir": str(tmp_path)}),
    ]


@pytest.mark.parametrize("mode", ["L", "1"])
def test_grey_pictures_have_one_channel(hub, mode):
    hub.found = {"train": split_of(6, mode=mode), "test": split_of(3, 6, mode=mode)}
    data = load("hub:pets")
    assert data.channels == 1
    assert np.array_equal(data.train_inputs[0, 0], np.asarray(picture(0, mode).convert("L")))


@pytest.mark.parametrize("mode", ["L", "P"])
def test_grey_and_indexed_pictures_among_coloured_ones_are_coloured(hub, mode):
    hub.found["train"].rows[2]["img"] = picture(9, mode)
    found = load("hub:pets").train_inputs[2]
    assert np.array_equal(found, np.asarray(picture(9, mode).convert("RGB")).transpose(2, 0, 1))


def test_of_two_columns_of_classes_the_finer_is_taken(hub):
    fine, coarse = ClassLabel([f"kind {number}" for number in range(20)]), ClassLabel()
    features = {"img": Image(), "coarse": coarse, "fine": fine}
    for split in hub.found.values():
        split.features = features
        split.rows = [
            {"img": row["img"], "coarse": 1, "fine": 10 + row["label"]} for row in split.rows
        ]
    data = load("hub:pets")
    assert data.classes == 20
    assert data.test_labels.tolist() == [10, 11, 12]


def found(train: Split | None = None, test: Split | None = None, **changed: Any) -> dict:
    """Return splits to train and to test on, with changes of a single example."""
    train = split_of(6) if train is None else train
    train.rows[-1] |= changed
    return {"train": train, "test": split_of(3, 6) if test is None else test}


TWO_PICTURES = split_of(6, features={**PLAIN, "text": Image()})
NO_CLASSES = split_of(6, features={"img": Image(), "label": Value("int64")})
REFUSED = {
    "no training split": ({"test": split_of(3)}, "splits test, but train is needed"),
    "two pictures": (found(TWO_PICTURES), "2 columns of pictures"),
    "no classes": (found(NO_CLASSES), "0 columns of classes"),
    "larger": (found(img=picture(0, size=(5, 5))), "example 5: 5 x 5 pixels, .* 4 x 4"),
    "oblong": (found(split_of(3, size=(5, 4))), "example 0: 5 x 4 pixels, .* square"),
    "transparent": (found(img=picture(0, "RGBA")), "example 5: .* RGBA, but 1 or L or P or RGB"),
    "colour among grey": (
        found(split_of(6, mode="L"), img=picture(0)),
        "example 5: .* RGB, .*grey",
    ),
    "beyond": (found(label=3), "example 5: the label 3, .* 0 to 2"),
    "empty": (found(test=Split(PLAIN, [])), "a split without examples"),
    "other size to test on": (found(test=split_of(2, size=(6, 6))), r"\(3, 4, 4\) .*\(3, 6, 6\)"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_set_of_equal_images_in_classes_is_refused_with_the_reason(hub, kind):
    hub.found, message = REFUSED[kind]
    with pytest.raises(sb.DataError, match=message) as refusal:
        load("hub:pets")
    assert str(refusal.value).startswith("hub:pets")


def test_what_the_hub_refuses_is_passed_on_with_what_to_write(hub):
    def load_dataset(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("no such data set, or no network")

    hub.load_dataset = load_dataset
    message = r"hub:pets cannot be had from the hub: no such data set, .*hub:NAME:CONFIGURATION"
    with pytest.raises(sb.DataError, match=message):
        load("hub:pets")


@pytest.mark.parametrize(
    "name", ["hub:", "hub::configuration", "hub:../pets", "hub:/pets", "hub:someone/.."]
)
def test_a_name_is_needed(hub, name):
    with pytest.raises(sb.ConfigurationError, match=r"names no data set: write hub:NAME"):
        load(name)
    assert not hub.calls


def test_without_the_package_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(sb.ConfigurationError, match=r"pip install 'selective-backprop\[hub\]'"):
        load("hub:uoft-cs/cifar10")


@pytest.mark.parametrize("find", [find_recipe, bench_recipe])
@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("hub:cifar10", "cifar10"),
        ("hub:uoft-cs/cifar100", "cifar100"),
        ("hub:zalando-datasets/fashion_mnist", "fashion-mnist"),
        ("hub:ufldl-stanford/svhn:cropped_digits", "svhn"),
        ("hub:someone/pets", "svhn"),
    ],
)
def test_a_data_set_of_the_hub_is_trained_on_as_the_one_whose_name_it_bears(find, name, like):
    recipe, known = find(name), RECIPES[like]
    assert recipe.data == name
    assert {**recipe.config(), "data": like} == known.config()
