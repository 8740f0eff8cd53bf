"""Advice is asked of a training that stays as it is, and every way to ask wrongly says so."""

import copy
import random
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from fixture_doors import bits, random_streams
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.guide._advice.advise import judge

LOSS = nn.CrossEntropyLoss()
BATCH, EXAMPLES = 4, 90


class Noisy(TensorDataset):
    """Examples whose loading draws from every stream."""

    def __getitem__(self, index):
        inputs, target = super().__getitem__(index)
        return inputs + torch.rand(()) * np.random.rand() * random.random(), target


class Stream(IterableDataset):
    def __init__(self, examples: int = EXAMPLES):
        self.examples = examples

    def __iter__(self):
        for number in range(self.examples):
            yield torch.full((3,), float(number % 7)), number % 2


class Deaf(IterableDataset):
    """Says that it has examples, and yields none."""

    def __len__(self):
        return EXAMPLES

    def __iter__(self):
        return iter(())


def pairs(kind=TensorDataset) -> TensorDataset:
    inputs = torch.randn(EXAMPLES, 3, generator=torch.Generator().manual_seed(0))
    return kind(inputs, (inputs.sum(1) > 0).long())


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)
    )


def ask(model=None, loader=None, loss_fn=LOSS, **options) -> sb.guide.Advice:
    """Ask for the shortest answer."""
    loader = DataLoader(pairs(), BATCH) if loader is None else loader
    return sb.guide.advise(model or net(), loader, loss_fn, **({"seconds": 1e-3} | options))


@pytest.fixture(scope="module")
def asked():
    """A training that has begun, what it was before advice was asked, and the advice."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(pairs(Noisy), BATCH, shuffle=True, generator=generator)
    inputs, targets = next(iter(loader))
    LOSS(model(inputs), targets).backward()
    optimizer.step()
    model[3].eval()
    with unhooked():  # checking annotations draws from Python's stream
        before = state(model, optimizer, generator)
        advice = ask(model, loader, optimizer=optimizer, epochs=6, seconds=60)
        return before, state(model, optimizer, generator), advice


def state(model, optimizer, generator):
    return bits(
        {
            "model": dict(model.state_dict()),
            "modes": [module.training for module in model.modules()],
            "gradients": [parameter.grad for parameter in model.parameters()],
            "optimizer": copy.deepcopy(optimizer.state_dict()),
            "streams": random_streams(generator),
        }
    )


def test_model_optimiser_loader_and_random_streams_are_as_they_were(asked):
    before, after, _ = asked
    assert before == after


def test_it_looks_at_the_data_and_times_epochs_with_and_without_auto(asked):
    *_, advice = asked
    assert (advice.traits.sample, advice.traits.classes) == (EXAMPLES, 2)
    cost = advice.cost
    assert cost.plain > 0
    assert cost.auto > 0
    assert 0 < cost.kept <= 1
    assert cost.measured == EXAMPLES


def test_an_epoch_that_fits_is_measured_whole_and_of_others_a_part():
    assert ask(seconds=60).cost.measured == EXAMPLES
    few = ask().cost
    assert few.measured == 8 * BATCH
    assert few.plain > 0


def test_the_data_looked_at_can_be_others_than_those_trained_on():
    twice = TensorDataset(*(torch.cat([part, part]) for part in pairs().tensors))
    advice = ask(data=twice, seconds=60)
    assert advice.traits.copies == pytest.approx(0.5)


def test_the_loss_of_a_selective_loader_is_taken_for_the_loss_it_wraps():
    plain = DataLoader(pairs(), BATCH)
    model = net()
    door = sb.SelectiveLoader(plain, model, LOSS, sb.auto(), epochs=9, quiet=True)
    found = ask(model, plain, door.loss_fn)
    assert found.cost is not None
    suspects = sb.guide.find_label_issues(model, plain, door.loss_fn)
    expected = sb.guide.find_label_issues(model, plain, LOSS)
    assert np.array_equal(suspects.suspicion, expected.suspicion)


def test_a_loader_with_workers_is_advised_on():
    assert ask(loader=DataLoader(pairs(), BATCH, num_workers=1)).cost.plain > 0


def test_batches_that_are_no_pairs_are_advised_on_by_their_losses():
    def losses(model, batch):
        inputs, targets, _ = batch
        return nn.functional.cross_entropy(model(inputs), targets, reduction="none")

    inputs, targets = pairs().tensors
    loader = DataLoader(TensorDataset(inputs, targets, targets), BATCH)
    assert ask(loader=loader, loss_fn=None, losses=losses).cost.plain > 0
    given = ask(loader=loader, outputs=lambda model, batch: (model(batch[0]), batch[1]))
    assert given.cost.plain > 0


def test_a_loss_of_ones_own_that_is_no_cross_entropy_is_warned_of():
    def absolute(outputs, targets):
        return (outputs.softmax(1) - nn.functional.one_hot(targets, outputs.shape[1])).abs().sum(1)

    with pytest.warns(sb.SelectionWarning, match="no cross-entropies of these outputs"):
        ask(loss_fn=absolute)


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"loss_fn": nn.MSELoss()}, "MSELoss"),
        ({"loss_fn": lambda outputs, targets: outputs.sum()}, "loss is a scalar"),
        ({"loader": DataLoader(Stream(), BATCH)}, "stream"),
    ],
    ids=["no cross-entropy", "no loss of each example", "stream"],
)
def test_where_losses_or_examples_cannot_be_read_the_advice_is_no(training, words):
    advice = ask(**training)
    assert (advice.strategy, advice.code, advice.cost) == (None, (), None)
    assert words in advice.reasons[0]
    assert "choose.md" in advice.reasons[1]
    assert advice.traits.classes == 2


@pytest.mark.parametrize("lr", [1e4, 1e30])
def test_of_a_model_that_diverges_there_is_no_verdict(lr):
    model = net()
    advice = ask(model, optimizer=torch.optim.SGD(model.parameters(), lr=lr))
    assert (advice.strategy, advice.cost) == (None, None)
    assert "diverged" in advice.verdict
    assert "learning rate" in advice.reasons[0]


CLEAN = sb.guide.DataTraits(1000, 0.0, 10, 10.0, 0.0, 0.01, 0.02)
WRONG = replace(CLEAN, wrong_labels=0.2)
COPIED = replace(CLEAN, copies=0.5)
SKEWED = replace(CLEAN, effective_classes=5.0)
FAST = sb.guide.EpochCost(10.0, 6.0, 0.5, 1000)


@pytest.mark.parametrize(
    ("traits", "words"),
    [(WRONG, "labels look wrong"), (SKEWED, "classes are rare")],
)
def test_on_data_that_auto_gains_on_it_is_advised_with_the_lines_to_write(traits, words):
    advice = judge(traits, FAST, None, 20)
    assert advice.strategy == "auto"
    assert words in advice.verdict
    assert "sb.auto()" in advice.code[0]
    assert "takes 10 s" in str(advice)
    assert len(str(advice).splitlines()) <= 5


@pytest.mark.parametrize(
    ("traits", "cost", "epochs", "words"),
    [
        (CLEAN, FAST, 20, "On such data plain training at the same cost"),
        (replace(CLEAN, classes=2, effective_classes=1.1), FAST, 20, "On such data plain training"),
        (COPIED, FAST, 20, "find_copies"),
        (WRONG, FAST, 4, "4 epochs"),
        (replace(CLEAN, wrong_labels=None), FAST, 20, "could not be judged"),
        (SKEWED, replace(FAST, auto=12.0), None, "2.4 times as long"),
        (WRONG, replace(FAST, auto=12.0, kept=0.4), None, "3.0 times as long"),
    ],
    ids=["clean", "two classes", "copies", "short", "unknown", "slow", "slow though few are kept"],
)
def test_elsewhere_the_advice_is_not_to_select_with_what_is_against_it(traits, cost, epochs, words):
    advice = judge(traits, cost, None, epochs)
    assert (advice.strategy, advice.code) == (None, ())
    assert words in advice.reasons[0]
    assert len(str(advice).splitlines()) <= 5


@pytest.mark.parametrize(
    ("loss_fn", "take"),
    [
        (nn.CrossEntropyLoss(), "nn.CrossEntropyLoss(label_smoothing=0.3)"),
        (nn.CrossEntropyLoss(label_smoothing=0.1), "loss_fn"),
        (nn.CrossEntropyLoss(ignore_index=9), "loss_fn"),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), "loss_fn"),
    ],
    ids=["plain", "smoothed", "ignores", "weighs"],
)
def test_a_plain_cross_entropy_is_advised_to_smooth_labels(monkeypatch, loss_fn, take):
    monkeypatch.setattr(
        "selective_backprop.guide._advice.advise.data_traits", lambda *_, **__: WRONG
    )
    monkeypatch.setattr(
        "selective_backprop.guide._advice.advise.measure_epochs", lambda *_, **__: FAST
    )
    code = ask(loss_fn=loss_fn, epochs=20).code
    assert code[0] == f"loader = sb.SelectiveLoader(loader, model, {take}, sb.auto())"
    briefly = ask(loss_fn=loss_fn, epochs=4).strategy
    assert (briefly is None) == (take == "loss_fn" and not loss_fn.label_smoothing)


def test_where_labels_are_right_no_smoothing_is_advised(monkeypatch):
    module = "selective_backprop.guide._advice.advise"
    monkeypatch.setattr(f"{module}.data_traits", lambda *_, **__: SKEWED)
    monkeypatch.setattr(f"{module}.measure_epochs", lambda *_, **__: FAST)
    assert "smoothing" not in str(ask())


def test_a_little_longer_may_be_the_clock_and_is_no_reason_against_it():
    assert judge(WRONG, replace(FAST, auto=11.0), None, 20).strategy == "auto"


def test_where_next_to_nothing_is_skipped_yet_an_epoch_need_not_be_cheaper():
    young = replace(FAST, auto=10.2, kept=0.98)
    assert judge(WRONG, young, None, 20).strategy == "auto"


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"model": nn.Linear(5, 2)}, RuntimeError, "mat1 and"),
        ({"model": nn.Flatten()}, ValueError, "empty parameter list"),
        ({"loss_fn": nn.CrossEntropyLoss}, sb.ConfigurationError, r"write CrossEntropyLoss\(\)"),
        ({"loss_fn": None}, sb.ConfigurationError, "scoring needs a loss function, got None"),
        ({"loader": [1, 2]}, sb.LoaderError, "DataLoader is needed, got list.*shuffle=True"),
        ({"loader": DataLoader(Deaf(), BATCH)}, sb.LoaderError, "the loader yielded nothing"),
        ({"seconds": 0}, sb.ConfigurationError, "seconds=0: a finite number above 0"),
        (
            {"epochs": 0},
            sb.ConfigurationError,
            "epochs=0: a whole number of at least 1",
        ),
        (
            {"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)},
            sb.ConfigurationError,
            "moves parameters that are not the model's",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_advised_on_is_refused(wrong, error, message):
    with unhooked(), pytest.raises(error, match=message):
        ask(**wrong)


def test_a_model_that_cannot_be_copied_is_refused():
    model = net()
    model.cache = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(sb.ConfigurationError, match=r"\(Sequential\) cannot be copied with"):
        ask(model)


class Slow(TensorDataset):
    """Takes longer to load than to train on, and counts."""

    loaded = 0

    def __getitem__(self, index):
        time.sleep(0.005)
        self.loaded += 1
        return super().__getitem__(index)


def test_the_time_of_loading_counts():
    data = Slow(torch.randn(1600, 3), torch.arange(1600) % 2)
    advice = ask(loader=DataLoader(data, 8, shuffle=True), data=pairs(), seconds=1)
    assert advice.cost.measured < 400
    assert data.loaded < 1600  # for all that is measured: less than one epoch


@pytest.mark.parametrize(("examples", "batch"), [(3, 4), (24, 8), (30, 32), (300, 256)])
def test_epochs_of_few_batches_are_measured(examples, batch):
    inputs = torch.randn(examples, 3, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(3 * inputs, (inputs.sum(1) > 0).long())
    cost = ask(nn.Linear(3, 2), DataLoader(data, batch, shuffle=True), seconds=0.2).cost
    assert 0 < cost.kept <= 1
    assert cost.measured == examples


class Counting(torch.optim.SGD):
    """An optimiser with an attribute that torch does not copy."""

    def __init__(self, parameters):
        super().__init__(parameters, 0.01)
        self.count = 0

    def step(self, closure=None):
        self.count += 1
        return super().step(closure)


def test_an_optimiser_of_ones_own_is_copied_and_one_that_needs_a_closure_is_refused():
    model = net()
    optimizer = Counting(model.parameters())
    assert ask(model, optimizer=optimizer).cost is not None
    assert optimizer.count == 0
    with pytest.raises(sb.ConfigurationError, match=r"LBFGS takes no step: .*optimizer=None"):
        ask(model, optimizer=torch.optim.LBFGS(model.parameters()))
