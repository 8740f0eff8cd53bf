"""The embedded digits: a fixed split that leaves nothing out."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from selective_backprop.lab.data.datasets import read_digits


def test_the_split_is_1437_and_360_with_a_fifth_of_each_class():
    splits = read_digits()
    assert splits.train_images.shape == (1437, 1, 8, 8)
    assert splits.test_images.shape == (360, 1, 8, 8)
    train, test = splits.train_labels.bincount(), splits.test_labels.bincount()
    assert ((train + test) / 5 - test).abs().max() < 1
    assert splits.class_names == tuple("0123456789")


def test_every_example_is_in_exactly_one_split_with_its_label():
    splits = read_digits()
    images = torch.cat([splits.train_images, splits.test_images]).view(-1, 64)
    labels = torch.cat([splits.train_labels, splits.test_labels])
    digits = load_digits()
    whole = np.rint(digits.data * 255 / 16).astype(np.uint8)
    found = sorted(zip(images.tolist(), labels.tolist(), strict=True))
    assert found == sorted(zip(whole.tolist(), digits.target.tolist(), strict=True))


def test_of_the_examples_sorted_by_class_every_fifth_is_a_test_example():
    # Class 0 has 178 examples, so class 1 begins at place 178.
    splits = read_digits()
    digits = load_digits()
    zeros = np.flatnonzero(digits.target == 0)[::5]
    expected = np.rint(digits.data[zeros] * 255 / 16)
    assert np.array_equal(splits.test_images[splits.test_labels == 0].view(-1, 64), expected)
    ones = np.flatnonzero(digits.target == 1)[2::5]
    expected = np.rint(digits.data[ones] * 255 / 16)
    assert np.array_equal(splits.test_images[splits.test_labels == 1].view(-1, 64), expected)
