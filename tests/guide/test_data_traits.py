"""What data are made up of is found on data made for it, and the data stay as they were."""

import math
import random

import numpy as np
import pytest
import torch
from fixture_loaders import random_streams
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.guide._advice import traits
from selective_backprop.guide._advice.row_contents import hash_rows
from selective_backprop.guide._advice.traits import estimate_wrong_labels
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.datasets import LabData, load
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.data.noise import NoiseKind


def classified(examples: int, wrong: float = 0.0, shares=(0.25,) * 4) -> TensorDataset:
    """Clusters, one for each class, of which some labels are wrong."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.multinomial(torch.tensor(shares), examples, True, generator=generator)
    centers = 2 * torch.randn(len(shares), 12, generator=generator)
    inputs = centers[labels] + torch.randn(examples, 12, generator=generator)
    chosen = torch.rand(examples, generator=generator) < wrong
    return TensorDataset(inputs, torch.where(chosen, (labels + 1) % len(shares), labels))


def digits(**settings) -> LabData:
    return Composition(**settings)(load("digits"))


def ask(data: LabData) -> sb.guide.DataTraits:
    return sb.guide.data_traits(make_loader(data, batch_size=128, seed=0))


def test_exact_copies_are_counted_but_for_the_first_of_each_whatever_their_labels():
    inputs = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    rows = torch.cat([torch.arange(300), torch.arange(0, 300, 3)])
    found = sb.guide.data_traits(TensorDataset(inputs[rows], torch.arange(400) % 7))
    assert found.copies == pytest.approx(100 / 400)
    assert found.sample == 400


def test_rows_have_one_hash_only_if_they_are_equal_but_for_zeros_at_their_end():
    rows = torch.tensor([[0.0, 1.0, 2.0], [0.0, 2.0, 1.0], [1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])
    hashes = hash_rows([rows])
    assert hashes[0] == hashes[3]
    assert len(set(hashes)) == 3
    assert hash_rows([torch.nn.functional.pad(rows, (0, 4))]) == hashes
    assert hash_rows([rows, rows[:, :1]]) != hashes
    many = torch.arange(20_000).view(-1, 1)
    for kind in (torch.int64, torch.int32, torch.float32, torch.complex64):
        assert len(set(hash_rows([many.to(kind)]))) == 20_000
    assert len(set(hash_rows([torch.tensor([True, False]).bfloat16()]))) == 2
    assert len(set(hash_rows([torch.tensor([[True, False], [False, True]])]))) == 2


def test_classes_are_counted_with_their_effective_number():
    labels = torch.tensor([7] * 600 + [3] * 200 + [0] * 100 + [1] * 60 + [9] * 40)
    found = sb.guide.data_traits(TensorDataset(torch.randn(1000, 3), labels))
    entropy = -sum(share * math.log(share) for share in (0.6, 0.2, 0.1, 0.06, 0.04))
    assert found.effective_classes == pytest.approx(math.exp(entropy))
    assert found.classes == 5
    assert found.skewed
    assert not sb.guide.data_traits(classified(1000)).skewed


@pytest.mark.parametrize("wrong", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("kind", NoiseKind)
def test_wrong_labels_of_digits_are_told_within_three_points(wrong, kind):
    made = digits(noise=wrong, noise_kind=kind if wrong else NoiseKind.UNIFORM)
    found = ask(made)
    assert found.wrong_labels == pytest.approx(wrong, abs=0.03)
    assert found.mislabelled == (wrong > 0)
    assert found.wrong_labels_at_most >= wrong


def test_copies_change_nothing_about_wrong_labels():
    once = classified(1500, wrong=0.2)
    thrice = TensorDataset(*(torch.cat([part] * 3) for part in once.tensors))
    found, expected = map(sb.guide.data_traits, (thrice, once))
    assert found.wrong_labels == pytest.approx(expected.wrong_labels, abs=0.01)
    assert found.wrong_labels > 0.15


def test_wrong_labels_are_told_where_classes_are_skewed():
    found = sb.guide.data_traits(classified(3000, wrong=0.15, shares=(0.7, 0.2, 0.06, 0.04)))
    assert found.wrong_labels == pytest.approx(0.15, abs=0.04)
    assert found.mislabelled


def test_of_labels_that_nothing_predicts_there_is_only_a_bound():
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(
        torch.randn(1500, 8, generator=generator), torch.randint(10, (1500,), generator=generator)
    )
    found = sb.guide.data_traits(data)
    assert found.wrong_labels is None
    assert found.wrong_labels_at_most > 0.5
    assert not found.mislabelled


def test_left_out_predictions_are_those_of_a_classifier_without_the_example():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 5, generator=generator).double()
    labels = torch.randint(3, (40,), generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traits, "PENALTIES", (0.1,))
        fast = traits._left_out_predictions(features, labels)
    wanted = torch.nn.functional.one_hot(labels).double()
    for each in range(40):
        rest = torch.arange(40) != each
        gram = features[rest].T @ features[rest] + 0.1 * 40 * torch.eye(5)
        weights = torch.linalg.solve(gram, features[rest].T @ wanted[rest])
        torch.testing.assert_close(fast[each], features[each] @ weights)


def test_of_too_few_examples_or_one_class_nothing_is_estimated():
    numbers = torch.randn(100, 4)
    nothing, one_class = (None, None, None), torch.zeros(500, dtype=torch.int64)
    assert estimate_wrong_labels(numbers, torch.arange(100) % 2) == nothing
    assert estimate_wrong_labels(torch.randn(500, 4), one_class) == nothing


class Augmented(Dataset):
    """Each example comes with random numbers added."""

    def __init__(self, data: Dataset) -> None:
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        inputs, target = self.data[index]
        return inputs + torch.rand(()) + np.random.rand() + random.random(), target


def test_augmentation_hides_copies_and_classes_are_counted_all_the_same():
    inputs = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs[torch.arange(400) % 200], torch.arange(400) % 2)
    hidden = sb.guide.data_traits(Augmented(data))
    assert hidden.copies is None
    assert hidden.classes == 2


def test_loader_data_set_and_random_streams_are_as_they_were():
    generator = torch.Generator().manual_seed(3)
    data = Augmented(classified(300))
    loader = DataLoader(data, 16, shuffle=True, generator=generator, num_workers=1)
    with unhooked():  # checking annotations draws from Python's stream
        before, held = random_streams(generator), dict(vars(loader))
        sb.guide.data_traits(loader)
        assert random_streams(generator) == before
    assert vars(loader) == held
    assert loader.dataset is data


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(600):
            yield torch.full((3,), float(number % 200)), number % 2


class Named(Dataset):
    """Batches are mappings, of names, tokens and a target."""

    def __len__(self):
        return 300

    def __getitem__(self, index):
        tokens = torch.arange(index % 100, index % 100 + 8)
        return {"id": str(index), "input_ids": tokens, "labels": index % 3}


def test_of_a_stream_and_of_mappings_what_can_be_told_is():
    stream = sb.guide.data_traits(DataLoader(Stream(), 32))
    assert (stream.sample, stream.classes) == (600, 2)
    assert stream.copies == pytest.approx(2 / 3)
    named = sb.guide.data_traits(Named())
    assert (named.copies, named.classes) == (pytest.approx(2 / 3), 3)


@pytest.mark.parametrize(
    "targets",
    [torch.randn(300), torch.randn(300, 4), torch.arange(300), -torch.ones(300).long()],
    ids=["numbers", "soft", "names", "negative"],
)
def test_targets_that_are_no_classes_leave_what_is_of_classes_unknown(targets):
    found = sb.guide.data_traits(TensorDataset(torch.randn(300, 4), targets))
    assert found.copies == 0.0
    assert {found.classes, found.effective_classes, found.wrong_labels} == {None}


class Worded(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return f"text {index}", index % 2


def test_of_inputs_that_are_no_tensors_classes_are_known():
    found = sb.guide.data_traits(Worded())
    assert (found.copies, found.classes, found.sample) == (None, 2, 10)


def test_it_looks_at_a_part_when_time_is_short():
    found = sb.guide.data_traits(DataLoader(classified(3000), 50), seconds=1e-6)
    assert found.sample == 50


def test_what_was_found_is_said_in_words():
    found = ask(digits(skew=1.5, copies=1, places=2000, noise=0.2))
    assert found.repetitive
    assert found.skewed
    assert found.mislabelled
    for share in (found.copies, found.wrong_labels):
        assert f"{share:.0%}" in str(found)
    assert f"10 classes, effectively {found.effective_classes:.1f}" in str(found)
    unknown = sb.guide.data_traits(Worded())
    assert "copies unknown" in str(unknown)


@pytest.mark.parametrize(
    ("data", "seconds", "error"),
    [
        (classified(300), 0, sb.ConfigurationError),
        (DataLoader(TensorDataset(torch.empty(0, 3)), 4), 1, sb.LoaderError),
        (5, 1, sb.LoaderError),
    ],
    ids=["seconds", "empty", "neither"],
)
def test_what_cannot_be_measured_is_refused(data, seconds, error):
    with unhooked(), pytest.raises(error):
        sb.guide.data_traits(data, seconds=seconds)


def test_inputs_may_be_one_number_for_each_example():
    rows = [{"age": float(i % 7), "income": 2.0 * i, "labels": i % 2} for i in range(99)]
    found = sb.guide.data_traits(DataLoader(rows, 8))
    assert (found.sample, found.classes, found.copies) == (99, 2, 0.0)
