"""What a loader tells of classes and of wrong labels, and what `auto` does about them."""

import re
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
import torch
from fixture_loaders import same_tensors
from fixture_training import Training
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler

import selective_backprop as sb

TRIMS = sb.auto(trim=True)


@cache
def digits(wrong: float) -> tuple[TensorDataset, torch.Tensor]:
    """Return the digits twice, some labelled wrong, and which of them are."""
    inputs, labels = load_digits(return_X_y=True)
    inputs = np.concatenate([inputs, inputs + 1])
    labels = np.concatenate([labels, labels])
    draw = np.random.default_rng(0)
    flips = draw.random(len(labels)) < wrong
    given = np.where(flips, (labels + draw.integers(1, 10, len(labels))) % 10, labels)
    data = TensorDataset(torch.tensor(inputs / 16).float(), torch.tensor(given))
    return data, torch.from_numpy(flips)


class Loop(Training):
    def __init__(
        self, wrong=0.2, strategy=TRIMS, smoothing=0.3, data=None, batch=64, weight=None, **options
    ):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)
        loss_fn = nn.CrossEntropyLoss(weight, label_smoothing=smoothing)
        drawn = {name: options.pop(name) for name in ("shuffle", "sampler") if name in options}
        drawn = drawn or {"shuffle": True}
        data = DataLoader(digits(wrong)[0] if data is None else data, batch, **drawn)
        self.loader = sb.SelectiveLoader(
            data, self.model, loss_fn, strategy, **{"quiet": True} | options
        )
        self.loss_fn = self.loader.loss_fn

    def epoch(self, after=lambda: None):
        for inputs, targets in self.loader:
            self.optimizer.zero_grad()
            self.loss_fn(self.model(inputs), targets).backward()
            self.optimizer.step()
            after()
        return self


@pytest.mark.parametrize(("wrong", "smoothing"), [(0.0, 0.3), (0.2, 0.0), (0.2, 0.3), (0.4, 0.3)])
def test_the_share_of_wrong_labels_is_known_from_the_second_epoch_on(wrong, smoothing):
    loop = Loop(wrong, sb.auto(), smoothing)
    assert loop.epoch().loader.wrong_labels is None
    next(iter(loop.loader))
    found = loop.loader.wrong_labels
    # A label that is wrong is drawn among nine classes, and at random among ten.
    assert found.share == pytest.approx(wrong * 10 / 9, abs=2 * found.half_width)
    assert found.is_clear == (wrong > 0)


@pytest.mark.parametrize("parts", [1, 4])
def test_nothing_is_estimated_of_data_stored_by_class_and_the_reason_is_said_once(parts, capsys):
    data = digits(0.0)[0]
    places = torch.arange(len(data)).chunk(parts)
    labels = data.tensors[1]
    order = torch.cat([part[labels[part].argsort(stable=True)] for part in places])
    stored = TensorDataset(*(column[order] for column in data.tensors))
    options = {"data": stored, "shuffle": False, "quiet": False}
    loops = [Loop(strategy=each, **options) for each in (TRIMS, sb.auto())]
    for loop in loops:
        for _ in range(3):
            loop.epoch()
        assert loop.loader.wrong_labels is None
        said = capsys.readouterr().err
        assert said.count("shuffle=True") == (loop is loops[0]) + (loop is loops[1])
        assert "± " not in said
    assert same_tensors(*(loop.model.state_dict() for loop in loops))  # nothing is trimmed


@pytest.mark.filterwarnings("ignore:auto undoes")
def test_nothing_is_estimated_where_classes_are_weighed_or_drawn_unevenly(capsys):
    share = torch.linspace(0.1, 1, 10)
    drawn = WeightedRandomSampler(share[digits(0.2)[0].tensors[1]], 3594)
    for uneven in {"weight": share}, {"sampler": drawn}:
        loop = Loop(0.2, sb.auto(), 0.0, quiet=False, **uneven).epoch().epoch()
        assert loop.loader.wrong_labels is None
    assert "±" not in capsys.readouterr().err


def visits(loop):
    counts = loop.loader.ledger.selected.float()
    flips = digits(0.2)[1]
    return float(counts[flips].mean()), float(counts[~flips].mean())


def test_the_wrong_share_is_left_out_from_the_second_epoch_on():
    loops = [Loop(strategy=strategy) for strategy in (TRIMS, sb.auto())]
    for loop in loops:
        loop.epoch().epoch()
    (wrong, right), (kept, _) = map(visits, loops)
    assert kept == pytest.approx(2.0, abs=0.1)  # they look hard, and the other rule waits
    assert wrong < kept - 0.4
    assert right > 1.3


def test_nothing_is_left_out_by_a_share_where_all_labels_are_right_or_no_outputs_are_shown():
    loops = [Loop(0.0, strategy).epoch().epoch() for strategy in (TRIMS, sb.auto())]
    assert same_tensors(*(loop.model.state_dict() for loop in loops))
    by_hand = Loop(0.2, with_selection=True)
    for _ in range(2):
        for (inputs, targets), selection in by_hand.loader:
            losses = nn.functional.cross_entropy(by_hand.model(inputs), targets, reduction="none")
            by_hand.loader.record(selection, losses, targets=targets)
    assert by_hand.loader.wrong_labels is None


def test_a_training_that_leaves_wrong_labels_out_continues_bit_for_bit():
    whole, saves = Loop(), []
    for _ in range(3):
        whole.epoch(lambda: saves.append(whole.save()))
    for place in (0, 35, 55, 56, 80):  # an epoch has 57 batches
        again = Loop()
        again.load(saves[place])
        assert len(again.loader)  # which changes nothing
        while again.loader.stats.batches < whole.loader.stats.batches:
            again.epoch()
        assert again.loader.wrong_labels == whole.loader.wrong_labels
        assert same_tensors(again.model.state_dict(), whole.model.state_dict())


def test_the_second_epoch_says_it_once_and_the_log_keeps_it(capsys):
    logged = []
    log = sb.Log(lambda values, step: logged.append(values), every=1)
    loop = Loop(quiet=False)
    for _ in range(3):
        for _batch in loop.epoch().loader:
            log(loop.loader)
            break
    said = [line for line in capsys.readouterr().err.splitlines() if "look wrong" in line]
    [line] = said
    assert line.startswith("auto: 2")
    assert "sb.guide.audit" in line
    name = "selection/wrong_labels"
    shares = [values[name] for values in logged if name in values]
    assert shares
    assert set(shares) == {loop.loader.wrong_labels.share}
    Loop(0.0, quiet=False).epoch().epoch()
    assert "look wrong" not in capsys.readouterr().err


def test_a_share_of_few_examples_is_not_said(capsys):
    for examples in (900, 1000):
        few = Subset(digits(0.4)[0], range(examples))
        loop = Loop(strategy=sb.auto(), data=few, batch=16, quiet=False).epoch()
        next(iter(loop.loader))
        assert loop.loader.wrong_labels.is_clear
        assert ("look wrong" in capsys.readouterr().err) == (examples == 1000)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_call_that_is_printed_lists_the_share_that_is_said(smoothing, capsys):
    loop, wrong = Loop(0.2, sb.auto(), smoothing, quiet=False).epoch(), digits(0.2)[1].numpy()
    next(iter(loop.loader))
    said = capsys.readouterr().err.splitlines()[-1]
    share, call = re.fullmatch(r"auto: (\d+)% .*; (sb\.\S+) lists them", said).groups()
    for epochs, right in ((0, 0.7), (4, 0.93)):
        for _ in range(epochs):
            loop.epoch()
        listed = eval(call, {"sb": sb, "loader": loop.loader})
        assert len(listed) == pytest.approx(len(wrong) * int(share) / 100, rel=0.03)
        assert wrong[listed].mean() > right


def test_a_label_that_the_loss_ignores_is_no_class_whatever_its_number():
    inputs, labels = load_digits(return_X_y=True)
    images, found = torch.tensor(inputs / 16).float(), []
    for ignored in (-100, 10):  # 10 is one of the outputs
        targets = torch.tensor(labels)
        targets[::2] = ignored
        torch.manual_seed(0)
        model = nn.Linear(64, 11)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
        loss_fn = nn.CrossEntropyLoss(ignore_index=ignored)
        data = DataLoader(TensorDataset(images, targets, torch.arange(len(labels))), 16, True)
        loader = sb.SelectiveLoader(
            data, model, loss_fn, TRIMS, outputs=lambda model, batch: (model(batch[0]), batch[1])
        )
        loss_fn, rows = loader.loss_fn, []
        for _ in range(3):
            for batch, batch_targets, places in loader:
                optimizer.zero_grad()
                loss_fn(model(batch), batch_targets).backward()
                optimizer.step()
                rows += places.tolist()
        found.append((loader.wrong_labels, loader.class_visits, rows))
    assert found[0] == found[1]


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


def trained(data, strategy, epochs, log=lambda loader: None):
    loop = Loop(strategy=strategy, smoothing=0.0, data=data)
    for _ in range(epochs):
        loop.epoch(lambda: log(loop.loader))
    return loop.loader


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


def test_one_hot_targets_tell_classes_as_class_numbers_do(imbalanced):
    inputs, targets = imbalanced.tensors
    encoded = TensorDataset(inputs, one_hot(targets))
    loaders = [trained(data, sb.auto(), 8) for data in (imbalanced, encoded)]
    assert loaders[0].class_visits == loaders[1].class_visits
    assert torch.equal(*(loader.ledger.selected for loader in loaders))
    assert loaders[1].stats.rate < 0.9
    assert loaders[1].wrong_labels is None


def test_where_no_class_is_told_none_is_counted(imbalanced):
    assert trained(imbalanced, sb.easy_skip(schedule=sb.Schedule()), 1).class_visits is None


def test_classes_are_told_by_hand_where_there_is_one_for_each_row(imbalanced):
    def known(ways, loss_fn=None):
        options = {"with_selection": True, "quiet": True}
        loader = sb.SelectiveLoader(DataLoader(imbalanced, 32), None, loss_fn, sb.auto(), **options)
        for (_, targets), selection in loader:
            told = {name: each(targets) for name, each in ways.items()}
            loader.record(selection, torch.ones(len(targets)), **told)
        return None if loader.class_visits is None else loader.class_visits.classes

    for way in (
        {"targets": lambda y: y},
        {"targets": lambda y: y.byte()},
        {"targets": lambda y: y[:, None]},
        {"outputs": lambda y: (y, y)},
        {"targets": one_hot},
        {"targets": lambda y: one_hot(y).half().lerp(torch.tensor(0.1).half(), 0.3)},
        {"outputs": lambda y: ((y, y), one_hot(y))},
    ):
        assert known(way) == tuple(range(10))
    assert known({"targets": lambda y: y[:, None].expand(-1, 2)}) is None
    several = {"targets": lambda y: one_hot(y).index_fill(0, torch.tensor(0), 1.0)}
    assert known(several) is None
    assert known({"targets": one_hot}, nn.BCEWithLogitsLoss()) is None
    with pytest.warns(sb.SelectionWarning, match="targets=targets"):
        assert known({}) is None


def one_hot(targets):
    return nn.functional.one_hot(targets, 10).float()


def test_other_examples_than_those_of_a_loaded_state_are_warned_of_once():
    def make(first):
        return Loop(0.0, sb.auto(), 0.0, Subset(digits(0.0)[0], range(first, first + 500)))

    state = make(0).epoch().loader.state_dict()
    for first in (0, 500):
        loop = make(first)
        loop.loader.load_state_dict(state)
        with pytest.warns(sb.SelectionWarning, match="random_split") if first else nullcontext():
            loop.epoch()
        loop.epoch()


def test_the_log_has_the_least_share_of_a_class_once_an_epoch(imbalanced):
    entries = []
    log = sb.Log(lambda values, step: entries.append(values), every=10)
    trained(imbalanced, sb.auto(), epochs=3, log=log)
    name = "selection/least_class"
    known = [values[name] for values in entries if name in values]
    assert len(known) == 3 < len(entries)
    assert all(0.0 <= each <= 1.0 for each in known)
    assert known[-1] < 1.0  # what is learned was skipped
