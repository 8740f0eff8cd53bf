"""No class vanishes from what is trained on, and how often each was trained on is told."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

RARE = {0: 6, 1: 12, 2: 25}  # examples of some classes; of the others all


@pytest.fixture(scope="module")
def imbalanced():
    digits = load_digits()
    labels = torch.tensor(digits.target)
    rows = [
        (labels == number).nonzero().flatten()[: RARE.get(number, 10_000)] for number in range(10)
    ]
    kept = torch.cat(rows)
    inputs = torch.tensor(digits.data[kept] / 16, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    targets = labels[kept].clone()
    wrong = torch.rand(len(kept), generator=generator) < 0.1
    targets[wrong] = (
        targets[wrong] + 1 + torch.randint(9, (int(wrong.sum()),), generator=generator)
    ) % 10
    return TensorDataset(inputs, targets)


def trained(data, strategy, epochs, log=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    loader = DataLoader(data, 32, shuffle=True)
    loader = sb.SelectiveLoader(loader, model, nn.CrossEntropyLoss(), strategy, quiet=True)
    loss_fn = loader.loss_fn
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
            if log is not None:
                log(loader)
    return loader


def test_each_class_keeps_its_share_of_visits_within_the_documented_bound(imbalanced):
    loader = trained(imbalanced, sb.auto(), epochs=20)
    assert loader.stats.rate < 0.75  # so there was something to be shared
    found = loader.class_visits
    targets = imbalanced.tensors[1]
    assert found.classes == tuple(range(10))
    assert found.examples == tuple(targets.bincount().tolist())
    counted = targets.bincount(loader.ledger.selected.float(), minlength=10)
    assert found.visits == tuple(counted.int().tolist())
    assert found.least >= 0.1
    mean = sum(found.visits) / len(imbalanced)
    assert all(found.visits[c] / found.examples[c] > mean for c in RARE)  # what is rare is hard


def test_classes_are_noted_until_all_are_known(imbalanced):
    loader = trained(imbalanced, sb.auto(), epochs=2)
    noted = loader.ledger.classes.changes
    assert noted > 0
    known = loader.class_visits
    for _, targets in loader:
        loader.loss_fn(torch.zeros(len(targets), 10, requires_grad=True), targets)
    assert loader.ledger.classes.changes == noted
    assert loader.class_visits.examples == known.examples


def test_where_no_class_is_told_none_is_counted(imbalanced):
    inputs, targets = imbalanced.tensors
    squares = TensorDataset(inputs, nn.functional.one_hot(targets, 10).float())
    assert trained(squares, sb.auto(), 1).class_visits is None
    assert trained(imbalanced, sb.easy_skip(schedule=sb.Schedule()), 1).class_visits is None


@pytest.mark.parametrize("ignored", [-100, -1, 3])
def test_labels_that_the_loss_ignores_are_of_no_class(imbalanced, ignored):
    inputs, targets = imbalanced.tensors
    loader = sb.SelectiveLoader(
        DataLoader(TensorDataset(inputs, targets.where(targets != 3, ignored)), 32),
        *(nn.Linear(64, 10), nn.CrossEntropyLoss(ignore_index=ignored), sb.auto()),
        quiet=True,
    )
    loss_fn = loader.loss_fn
    for batch, labels in loader:
        loss_fn(torch.zeros(len(batch), 10, requires_grad=True), labels)
    assert loader.class_visits.classes == (0, 1, 2, 4, 5, 6, 7, 8, 9)


def test_classes_are_told_by_hand_where_there_is_one_for_each_row(imbalanced):
    def known(ways):
        loader = sb.SelectiveLoader(
            DataLoader(imbalanced, 32), None, None, sb.auto(), with_selection=True, quiet=True
        )
        for (_, targets), selection in loader:
            told = {name: each(targets) for name, each in ways.items()}
            loader.record(selection, torch.ones(len(targets)), **told)
        return None if loader.class_visits is None else loader.class_visits.classes

    for way in (
        {"targets": lambda y: y},
        {"targets": lambda y: y.byte()},
        {"targets": lambda y: y[:, None]},
        {"outputs": lambda y: (y, y)},
    ):
        assert known(way) == tuple(range(10))
    assert known({"targets": lambda y: y[:, None].expand(-1, 2)}) is None
    assert known({}) is None


def test_the_log_has_the_least_share_of_a_class_once_an_epoch(imbalanced):
    entries = []
    log = sb.Log(lambda values, step: entries.append(values), every=10)
    trained(imbalanced, sb.auto(), epochs=3, log=log)
    name = "selection/least_class"
    known = [values[name] for values in entries if name in values]
    assert len(known) == 3 < len(entries)
    assert all(0.0 <= each <= 1.0 for each in known)
    assert known[-1] < 1.0  # what is learned was skipped
