"""Advice rests on the data and the loss, nothing changes, and every way to ask wrongly says so."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from unhooked import unhooked

import selective_backprop as sb

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
        (CLEAN, 20, "On such data plain training at the same cost"),
        (replace(CLEAN, classes=2, effective_classes=1.1), 20, "On such data plain training"),
        (COPIED, 20, "find_copies"),
        (WRONG, 4, "4 epochs"),
        (replace(CLEAN, wrong_labels=None), 20, "could not be judged"),
    ],
)
def test_elsewhere_the_advice_is_not_to_select(found, traits, epochs, words):
    found(traits)
    advice = ask(loss_fn=nn.CrossEntropyLoss(ignore_index=9), epochs=epochs)
    assert (advice.strategy, advice.code) == (None, ())
    assert words in advice.reasons[0]
    assert len(str(advice).splitlines()) == 3


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
