"""Flipped labels: exactly as many as asked for, each wrong, and the same for everybody."""

from dataclasses import replace

import pytest
import reference
import torch
from fixture_lab import few_digits
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop_lab.data.datasets import load
from selective_backprop_lab.data.noise import LabelNoise, NoiseKind

DIGITS = load("digits")


@given(rate=st.floats(0.0, 1.0, exclude_max=True), seed=st.integers(-5, 2**40))
def test_exactly_the_share_that_was_asked_for_is_flipped_and_every_flip_is_wrong(rate, seed):
    noisy = LabelNoise(rate, seed)(DIGITS)
    wrong = noisy.train_labels != DIGITS.train_labels
    assert int(wrong.sum()) == round(rate * 1437)
    assert torch.equal(noisy.flipped, wrong)
    assert torch.equal(noisy.train_clean_labels, DIGITS.train_labels)
    assert set(noisy.train_labels.tolist()) <= set(range(10))


@given(rate=st.floats(0.0, 0.99), seed=st.integers(0, 1000))
def test_flips_are_those_of_the_reference(rate, seed):
    data = few_digits(50)
    expected = reference.flip_labels(data.train_labels.tolist(), 10, rate, seed)
    assert LabelNoise(rate, seed)(data).train_labels.tolist() == expected


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan"), float("inf")])
def test_a_rate_that_is_no_share_below_1_is_refused(rate):
    with pytest.raises(sb.ConfigurationError, match=r"noise of rate=.* \[0, 1\); 1/5 flips"):
        LabelNoise(rate)


def test_a_single_class_cannot_be_flipped():
    ones = replace(
        DIGITS, train_labels=torch.zeros_like(DIGITS.train_labels), class_names=("only",)
    )
    assert not LabelNoise(0.0)(ones).flipped.any()
    with pytest.raises(sb.ConfigurationError, match="digits has 1 class, so no label can be"):
        LabelNoise(0.5)(ones)


@given(rate=st.floats(0.0, 0.99), seed=st.integers(0, 1000))
def test_a_neighbour_flip_takes_the_same_labels_for_the_next_class(rate, seed):
    noisy = LabelNoise(rate, seed, NoiseKind.NEIGHBOUR)(DIGITS)
    assert torch.equal(noisy.flipped, LabelNoise(rate, seed)(DIGITS).flipped)
    wrong = noisy.flipped
    assert torch.equal(noisy.train_labels[wrong], (DIGITS.train_labels[wrong] + 1) % 10)


def test_alike_labels_name_what_the_examples_of_a_class_look_like():
    kinds = NoiseKind.UNIFORM, NoiseKind.ALIKE
    uniform, alike = (LabelNoise(0.5, 3, kind)(DIGITS) for kind in kinds)
    assert torch.equal(uniform.flipped, alike.flipped)
    inputs, right = DIGITS.train_inputs.double().flatten(1), DIGITS.train_labels
    means = torch.stack([inputs[right == label].mean(0) for label in range(10)])
    far = torch.cdist(inputs, means)
    far[torch.arange(len(right)), right] = torch.inf
    pairs = [{*zip(right.tolist(), far.argmin(1).tolist(), strict=True)}]
    wrong = right[alike.flipped].tolist(), alike.train_labels[alike.flipped].tolist()
    pairs.append({*zip(*wrong, strict=True)})
    assert pairs[1] <= pairs[0]
    nines = alike.train_labels[alike.flipped & (right == 9)].bincount(minlength=10)
    assert nines.argmax() in (1, 3, 5)  # which nines look like most
