"""What is made of a training set: shares, copies and wrong labels as asked for, always the same."""

import hashlib
from dataclasses import replace

import pytest
import torch
from fixture_cases import share_of_cases
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop_lab.data.composition import Composition, NoiseKind
from selective_backprop_lab.data.datasets import channel_statistics, load

DIGITS = load("digits")
SKEWED = Composition(skew=1.5, copies=1.0, places=2000)


def rows_of(composition, data=DIGITS):
    return composition.rows(data.train_labels, data.class_names)


def digest(data):
    tensors = (data.train_inputs, data.train_labels, data.train_clean_labels)
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in tensors)).hexdigest()[:16]


@share_of_cases(2 / 3)
@given(
    skew=st.floats(0.1, 2.5),
    copies=st.sampled_from([0.5, 1.0, 1.5]),
    places=st.integers(1500, 3000),
    seed=st.integers(0, 50),
)
def test_classes_follow_the_power_law_to_within_one_place(skew, copies, places, seed):
    made = Composition(skew=skew, copies=copies, places=places, seed=seed)(DIGITS)
    weights = torch.arange(1, 11).double() ** -skew
    counts = made.train_labels.bincount(minlength=10).sort(descending=True).values
    assert int(counts.sum()) == places == len(made.train_inputs)
    assert (counts - places * weights / weights.sum()).abs().max() <= 1


def test_without_copies_no_example_comes_twice_and_the_largest_class_is_whole():
    rows = rows_of(Composition(skew=1.0))
    assert len(rows.unique()) == len(rows)
    there, taken = DIGITS.train_labels.bincount(), DIGITS.train_labels[rows].bincount(minlength=10)
    largest = taken.argmax()
    assert there[largest] - taken[largest] <= 1
    assert (taken <= there).all()


def test_one_class_is_as_frequent_as_asked_and_the_others_are_alike():
    made = Composition(frequent=0.8)(DIGITS)
    counts = made.train_labels.bincount(minlength=10).sort(descending=True).values
    assert int(counts[0]) == pytest.approx(0.8 * len(made.train_labels), abs=1)
    assert int(counts[1] - counts[-1]) <= 1
    others = [Composition(frequent=0.8, seed=seed)(DIGITS).train_labels for seed in range(5)]
    assert len({int(labels.mode().values) for labels in others}) > 1
    with pytest.raises(sb.ConfigurationError, match=r"frequent=0.5: .* not be given with skew"):
        Composition(frequent=0.5, skew=1.0)


def test_without_skew_the_shares_are_the_data_sets_own():
    made = Composition(copies=1.0, places=1000)(DIGITS)
    own = DIGITS.train_labels.bincount() * (1000 / 1437)
    assert (made.train_labels.bincount() - own).abs().max() <= 1
    assert len(Composition(copies=1.0)(DIGITS).train_labels) == 1437


def test_places_show_the_examples_whose_labels_they_have():
    rows, made = rows_of(SKEWED), SKEWED(DIGITS)
    assert torch.equal(made.train_inputs, DIGITS.train_inputs[rows])
    assert torch.equal(made.train_labels, DIGITS.train_labels[rows])
    assert (made.mean, made.std) == channel_statistics(made.train_inputs)
    assert made.test_inputs is DIGITS.test_inputs
    assert len(made.train_labels[:500].unique()) == 10  # the places are in no order of class


def test_near_copies_are_the_example_shifted_a_little_and_lit_otherwise():
    near = replace(SKEWED, near_copies=1)
    rows, images = rows_of(near), near(DIGITS).train_inputs.float()
    assert torch.equal(rows, rows_of(SKEWED))
    padded = torch.nn.functional.pad(DIGITS.train_inputs.float(), [1] * 4, "reflect")
    first, exact = set(), 0
    for row, image in zip(rows.tolist(), images, strict=True):
        shifted = padded[row].unfold(1, 8, 1).unfold(2, 8, 1).reshape(9, 1, 8, 8)
        low, high = image - 0.79 * shifted > -1, image - (1.21 * shifted).clamp(max=255) < 1
        assert (low & high).flatten(1).all(1).any()
        equal = bool((image == shifted[4]).all())
        assert equal or row in first
        exact += equal and row in first
        first.add(row)
    assert exact < 0.05 * len(rows)


def test_what_is_composed_never_changes_between_versions_or_platforms():
    everything = replace(SKEWED, near_copies=2, noise=0.2, noise_kind=NoiseKind.NEIGHBOUR, seed=7)
    assert digest(everything(DIGITS)) == "b9d89016528305d5"
    assert digest(Composition(noise=0.2)(DIGITS)) == "92501a9c63fa2a94"
    assert rows_of(SKEWED)[:8].tolist() == [1061, 720, 456, 182, 995, 1061, 1402, 995]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"near_copies": 1}, "copies=1"),
        ({"noise_kind": NoiseKind.NEIGHBOUR}, "noise=1/5"),
        ({"noise": 1.0}, r"noise=1.0.*\[0, 1\)"),
        ({"places": 2000}, "places, or copies=1"),
        ({"skew": 3.0, "places": 100}, "skew=3.0 leaves no place"),
        ({"copies": 1.0, "near_copies": 9}, "shift is 9 pixels"),
    ],
)
def test_what_is_out_of_range_or_what_the_data_cannot_give_is_refused(asked, named):
    with pytest.raises(sb.ConfigurationError, match=named):
        Composition(**asked)(DIGITS)


@given(rate=st.floats(0.0, 1.0, exclude_max=True), seed=st.integers(-5, 2**40))
def test_exactly_the_share_that_was_asked_for_is_flipped_and_every_flip_is_wrong(rate, seed):
    noisy = Composition(noise=rate, seed=seed)(DIGITS)
    wrong = noisy.train_labels != DIGITS.train_labels
    assert int(wrong.sum()) == round(rate * 1437)
    assert torch.equal(noisy.flipped, wrong)
    assert torch.equal(noisy.train_clean_labels, DIGITS.train_labels)
    assert set(noisy.train_labels.tolist()) <= set(range(10))


def test_a_single_class_cannot_be_flipped():
    ones = replace(
        DIGITS, train_labels=torch.zeros_like(DIGITS.train_labels), class_names=("only",)
    )
    assert not Composition(noise=0.0)(ones).flipped.any()
    with pytest.raises(sb.ConfigurationError, match="digits has 1 class, so no label can be"):
        Composition(noise=0.5)(ones)


@given(rate=st.floats(0.01, 0.99), seed=st.integers(0, 1000))
def test_a_neighbour_flip_takes_the_same_labels_for_the_next_class(rate, seed):
    noisy = Composition(noise=rate, noise_kind=NoiseKind.NEIGHBOUR, seed=seed)(DIGITS)
    assert torch.equal(noisy.flipped, Composition(noise=rate, seed=seed)(DIGITS).flipped)
    wrong = noisy.flipped
    assert torch.equal(noisy.train_labels[wrong], (DIGITS.train_labels[wrong] + 1) % 10)


def test_alike_labels_name_what_the_examples_of_a_class_look_like():
    kinds = NoiseKind.UNIFORM, NoiseKind.ALIKE
    uniform, alike = (Composition(noise=0.5, noise_kind=kind, seed=3)(DIGITS) for kind in kinds)
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
