"""Advice rests on the data and the loss; what data are made up of is found; nothing changes."""

import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from fixture_loaders import random_streams
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.guide._advise import estimate_wrong_labels
from selective_backprop_lab.data.composition import Composition, NoiseKind
from selective_backprop_lab.data.datasets import LabData, load
from selective_backprop_lab.data.loader import make_loader

LOSS = nn.CrossEntropyLoss()
BATCH, EXAMPLES = 4, 90


class Stream(IterableDataset):
    """A stream of so many examples; it says that it has more."""

    def __init__(self, examples=EXAMPLES):
        self.examples = examples

    def __len__(self):
        return EXAMPLES

    def __iter__(self):
        return ((torch.full((3,), float(n % 7)), n % 2) for n in range(self.examples))


def pairs(kind=TensorDataset) -> TensorDataset:
    inputs = torch.randn(EXAMPLES, 3, generator=torch.Generator().manual_seed(0))
    return kind(inputs, (inputs.sum(1) > 0).long())


def ask(loader=None, loss_fn=LOSS, **options) -> sb.guide.Advice:
    return sb.guide.advise(
        DataLoader(pairs(), BATCH) if loader is None else loader, loss_fn, **options
    )


def test_the_data_looked_at_can_be_others_than_those_trained_on():
    twice = TensorDataset(*(torch.cat([part, part]) for part in pairs().tensors))
    assert ask(data=twice).traits.copies == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("training", "words"),
    [({"loss_fn": nn.MSELoss()}, "MSELoss"), ({"loader": DataLoader(Stream(), BATCH)}, "stream")],
)
def test_where_losses_or_examples_cannot_be_read_the_advice_is_no(training, words):
    advice = ask(**training)
    assert (advice.strategy, advice.code) == (None, ())
    assert words in advice.reasons[0]
    assert "choose.md" in advice.reasons[1]
    assert advice.traits.classes == 2
    assert len(str(advice).splitlines()) == 4


CLEAN = sb.guide.DataTraits(1000, 0.0, 10, 10.0, 0.0, 0.01, 0.02)
WRONG = replace(CLEAN, wrong_labels=0.2)
COPIED = replace(CLEAN, copies=0.5)
SKEWED = replace(CLEAN, effective_classes=5.0)


@pytest.fixture
def found(monkeypatch):
    """Return a function that says what is to be found in the data."""
    module = "selective_backprop.guide._advise"
    return lambda traits: monkeypatch.setattr(f"{module}.data_traits", lambda *_, **__: traits)


@pytest.mark.parametrize(
    ("traits", "words"), [(WRONG, "labels look wrong"), (SKEWED, "classes are rare")]
)
def test_on_data_that_auto_gains_on_it_is_advised_with_the_lines_to_write(found, traits, words):
    found(traits)
    advice = ask(epochs=20)
    assert advice.strategy == "auto"
    assert words in advice.verdict
    assert "sb.auto()" in advice.code[0]
    assert str(advice).splitlines() == [advice.verdict, f"Data: {traits}.", *advice.code]
    assert ("smoothing" in str(advice)) == (traits is WRONG)


@pytest.mark.parametrize(
    ("traits", "epochs", "words"),
    [
        (CLEAN, 20, "Plain training at the same cost"),
        (replace(CLEAN, classes=2, effective_classes=1.1), 20, "Plain training"),
        (COPIED, 20, "find_copies"),
        (WRONG, 4, "4 epochs"),
    ],
)
def test_elsewhere_the_advice_is_not_to_select(found, traits, epochs, words):
    found(traits)
    advice = ask(loss_fn=nn.CrossEntropyLoss(ignore_index=9), epochs=epochs)
    assert (advice.strategy, advice.code) == (None, ())
    assert words in advice.reasons[0]
    assert len(str(advice).splitlines()) == 3


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        *((each, "argmax.*On a regression") for each in (torch.randn(300), torch.randn(300, 4))),
        *((each, "not one integer") for each in (torch.arange(300), -torch.ones(300).long())),
        (torch.arange(150) % 2, "takes 200 examples"),
        (torch.arange(300) % 3, "hard to tell apart: .*find_label_issues"),
    ],
)
def test_labels_that_cannot_be_judged_get_one_verdict_with_why_and_what_to_do(targets, words):
    inputs = torch.randn(len(targets), 4)
    advice = ask(DataLoader(TensorDataset(inputs, targets), 10), epochs=20)
    assert (advice.traits.copies, advice.traits.wrong_labels) == (0.0, None)
    assert advice.traits.classes == advice.traits.effective_classes or targets.max() < 3
    assert advice.verdict.startswith("Train without selection: ")
    assert re.search(words, advice.reasons[0])
    augmented = str(ask(DataLoader(Augmented(inputs, targets), 10), epochs=20))
    assert "at random: pass data= with" in augmented


@pytest.mark.parametrize(
    ("loss_fn", "take"),
    [
        (LOSS, "nn.CrossEntropyLoss(label_smoothing=0.3)"),
        (nn.CrossEntropyLoss(label_smoothing=0.1), "loss_fn"),
        (nn.CrossEntropyLoss(ignore_index=9), "loss_fn"),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), "loss_fn"),
        (nn.functional.cross_entropy, "loss_fn"),
        (None, "loss_fn"),
    ],
)
def test_a_plain_cross_entropy_is_advised_to_smooth_labels(found, loss_fn, take):
    found(WRONG)
    code = ask(loss_fn=loss_fn, epochs=20).code
    assert code[0] == f"loader = sb.SelectiveLoader(loader, model, {take}, sb.auto())"
    briefly = ask(loss_fn=loss_fn, epochs=4).strategy
    assert (briefly is None) == (take == "loss_fn" and not getattr(loss_fn, "label_smoothing", 0))


def test_the_loss_of_a_selective_loader_is_taken_for_the_loss_it_wraps(found):
    found(WRONG)
    torch.manual_seed(0)
    plain, model = DataLoader(pairs(), BATCH), nn.Linear(3, 2)
    loader = sb.SelectiveLoader(plain, model, LOSS, sb.auto(), epochs=9, quiet=True)
    assert str(ask(plain, loader.loss_fn)) == str(ask(plain))
    squared = sb.SelectiveLoader(plain, model, nn.MSELoss(), sb.top_k(1 / 2), quiet=True)
    assert "MSELoss" in str(ask(plain, squared.loss_fn))
    suspects = sb.guide.find_label_issues(model, plain, loader.loss_fn)
    expected = sb.guide.find_label_issues(model, plain, LOSS)
    assert np.array_equal(suspects.suspicion, expected.suspicion)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loss_fn": nn.CrossEntropyLoss}, r"write CrossEntropyLoss\(\)"),
        ({"loader": [1, 2]}, "DataLoader is needed, got list.*shuffle=True"),
        ({"loader": nn.Linear(3, 2)}, "DataLoader is needed, got Linear"),
        ({"loader": DataLoader(Stream(0), BATCH)}, "the loader yielded nothing"),
        ({"seconds": 0}, "seconds=0: a finite number above 0"),
        ({"epochs": 0}, "epochs=0: a whole number of at least 1"),
    ],
)
def test_what_cannot_be_advised_on_is_refused(wrong, message):
    error = sb.LoaderError if "loader" in wrong else sb.ConfigurationError
    with unhooked(), pytest.raises(error, match=message):
        ask(**wrong)


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


def traits_of(data: LabData) -> sb.guide.DataTraits:
    return sb.guide.data_traits(make_loader(data, batch_size=128, seed=0))


def test_classes_are_counted_with_their_effective_number():
    labels = torch.tensor([7] * 600 + [3] * 200 + [0] * 100 + [1] * 60 + [9] * 40)
    found = sb.guide.data_traits(TensorDataset(torch.randn(1000, 3), labels))
    entropy = -sum(share * math.log(share) for share in (0.6, 0.2, 0.1, 0.06, 0.04))
    assert found.effective_classes == pytest.approx(math.exp(entropy))
    assert found.classes == 5
    assert found.skewed
    assert not sb.guide.data_traits(classified(1000)).skewed


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(0.0, NoiseKind.UNIFORM), *((0.05, kind) for kind in NoiseKind), (0.2, NoiseKind.UNIFORM)],
)
def test_wrong_labels_of_digits_are_told_within_three_points(wrong, kind):
    found = traits_of(digits(noise=wrong, noise_kind=kind))
    assert found.wrong_labels == pytest.approx(wrong, abs=0.03)
    assert found.mislabelled == (wrong > 0)
    assert found.wrong_labels_at_most >= wrong


def test_wrong_labels_are_told_where_classes_are_skewed_and_whatever_copies_there_are():
    once = classified(1500, wrong=0.15, shares=(0.7, 0.2, 0.06, 0.04))
    thrice = TensorDataset(*(torch.cat([part] * 3) for part in once.tensors))
    found, expected = map(sb.guide.data_traits, (thrice, once))
    assert found.wrong_labels == pytest.approx(expected.wrong_labels, abs=0.01)
    assert found.wrong_labels == pytest.approx(0.15, abs=0.04)
    assert found.mislabelled


def test_of_labels_that_nothing_predicts_there_is_only_a_bound_and_of_few_nothing():
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(1500, 8, generator=generator)
    found = sb.guide.data_traits(
        TensorDataset(numbers, torch.randint(10, (1500,), generator=generator))
    )
    assert found.wrong_labels is None
    assert found.wrong_labels_at_most > 0.5
    assert not found.mislabelled
    nothing, one_class = (None, None, None), torch.zeros(500, dtype=torch.int64)
    assert estimate_wrong_labels(numbers[:100, :4], torch.arange(100) % 2) == nothing
    assert estimate_wrong_labels(numbers[:500, :4], one_class) == nothing


class Augmented(TensorDataset):
    """Each example comes with random numbers added."""

    def __getitem__(self, index):
        inputs, target = super().__getitem__(index)
        return inputs + torch.rand(()) + np.random.rand() + random.random(), target


def test_loader_data_set_and_random_streams_are_as_they_were_and_augmentation_hides_copies():
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    data = Augmented(inputs[torch.arange(400) % 200], torch.arange(400) % 2)
    loader = DataLoader(data, 16, shuffle=True, generator=generator, num_workers=1)
    with unhooked():  # checking annotations draws from Python's stream
        before, held = random_streams(generator), dict(vars(loader))
        found = sb.guide.data_traits(loader)
        assert random_streams(generator) == before
    assert vars(loader) == held
    assert (found.copies, found.classes) == (None, 2)


class Repeating(IterableDataset):
    def __iter__(self):
        return ((torch.full((3,), float(n % 200)), n % 2) for n in range(600))


NAMED = [  # mappings of names, tokens and a target
    {"id": str(n), "input_ids": torch.arange(n % 100, n % 100 + 8), "labels": n % 3}
    for n in range(300)
]


def test_of_a_stream_and_of_mappings_what_can_be_told_is():
    stream = sb.guide.data_traits(DataLoader(Repeating(), 32))
    assert (stream.sample, stream.classes) == (600, 2)
    assert stream.copies == pytest.approx(2 / 3)
    named = sb.guide.data_traits(DataLoader(NAMED, 8))
    assert (named.copies, named.classes) == (pytest.approx(2 / 3), 3)


WORDED = [(f"text {index}", index % 2) for index in range(10)]


def test_of_a_part_words_or_numbers_what_can_be_told_is():
    found = sb.guide.data_traits(DataLoader(classified(3000), 50), seconds=1e-6)
    assert found.sample == 50  # when time is short
    found = sb.guide.data_traits(DataLoader(WORDED, 4))
    assert (found.copies, found.classes, found.sample) == (None, 2, 10)
    rows = [{"age": float(i % 7), "income": 2.0 * i, "labels": i % 2} for i in range(99)]
    found = sb.guide.data_traits(DataLoader(rows, 8))
    assert (found.sample, found.classes, found.copies) == (99, 2, 0.0)


def test_what_was_found_is_said_in_words():
    found = traits_of(digits(skew=1.5, copies=1, places=2000, noise=0.2))
    assert found.repetitive
    assert found.skewed
    assert found.mislabelled
    for share in (found.copies, found.wrong_labels):
        assert f"{share:.0%}" in str(found)
    assert f"10 classes, effectively {found.effective_classes:.1f}" in str(found)
    assert "copies unknown" in str(sb.guide.data_traits(DataLoader(WORDED, 4)))


def test_what_cannot_be_measured_is_refused():
    with unhooked(), pytest.raises(sb.LoaderError):
        sb.guide.data_traits(5)
