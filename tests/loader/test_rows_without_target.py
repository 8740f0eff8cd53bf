"""Rows without a target have no loss: every strategy keeps them at the rate of the others."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

EXAMPLES, CLASSES, TOKENS = 1024, 5, 4
RECORDED, LATER = sb.scorers.Recorded(), sb.Schedule(warmup_epochs=1)


# Those that score by forward passes, then those that use recorded losses.
SCORING = [
    sb.selective_backprop(1 / 3),
    sb.selective_backprop(1 / 3, draw="bernoulli"),
    sb.top_k(1 / 3),
    sb.low_k(1 / 3),
    sb.kath18(measure="loss", schedule=LATER),
    sb.stale_sb(1 / 3),
    sb.predicted_sb(1 / 3),
    sb.rho_loss(torch.linspace(0, 1, EXAMPLES), 1 / 3),
]
RECORDING = [
    sb.recorded_sb(1 / 3),
    sb.auto(),
    sb.easy_skip(schedule=LATER),
    sb.infobatch(schedule=LATER),
    sb.kakurenbo(),
    sb.tail_sft(),
    sb.rho_loss(torch.linspace(0, 1, EXAMPLES), 1 / 3, scorer=RECORDED, schedule=LATER),
]


class Tokens(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs).unflatten(1, (CLASSES, TOKENS))


def labelled_or(outputs, targets, reduction="mean"):
    """Return a loss of yes or no that leaves out targets that are NaN."""
    losses = nn.functional.binary_cross_entropy_with_logits(
        outputs, targets.nan_to_num(0.0), reduction="none"
    )
    losses = losses.where(targets == targets, 0.0)
    return losses if reduction == "none" else losses.mean()


class Loop:
    """Trains on examples of which two thirds lack a target, and counts how often each comes."""

    def __init__(self, strategy, kind="classes", ignored=-100, share=2 / 3, **options):
        draw = torch.Generator().manual_seed(0)
        classes = torch.randint(CLASSES, (EXAMPLES,), generator=draw)
        centres = 1.5 * torch.randn(CLASSES, 16, generator=draw)
        inputs = centres[classes] + torch.randn(EXAMPLES, 16, generator=draw)
        self.bare = torch.rand(EXAMPLES, generator=draw) < share
        torch.manual_seed(0)
        self.model = nn.Linear(16, CLASSES)
        self.loss_fn = nn.CrossEntropyLoss(ignore_index=ignored)
        if kind == "tokens":
            self.model = Tokens(16, CLASSES * TOKENS)
            classes = classes[:, None].repeat(1, TOKENS)
            classes[torch.rand(classes.shape, generator=draw) < 0.2] = ignored
        if kind == "yes or no":
            self.model, self.loss_fn, ignored = nn.Linear(16, 1), labelled_or, torch.nan
            classes = (classes[:, None] > 1).float()
        classes[self.bare] = ignored
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.01)
        data = DataLoader(TensorDataset(inputs, classes), 32, shuffle=True)
        options = {"epochs": 6, "with_selection": True} | options
        self.loader = sb.SelectiveLoader(data, self.model, self.loss_fn, strategy, **options)
        self.loss_fn = self.loader.loss_fn
        self.visits, self.weights = torch.zeros(2, EXAMPLES)

    def epochs(self, count, after=lambda: None):
        for _ in range(count):
            for (inputs, targets), selection in self.loader:
                self.optimizer.zero_grad()
                self.loss_fn(self.model(inputs), targets).backward()
                self.optimizer.step()
                self.visits.index_add_(0, selection.indices, torch.ones(len(inputs)))
                self.weights.index_add_(0, selection.indices, selection.weights)
                after()
        return self

    def means(self, counts):
        return float(counts[~self.bare].mean()), float(counts[self.bare].mean())


def check_rates(loop):
    loop.epochs(6)
    for counts, apart in ((loop.visits, 0.08), (loop.weights, 0.2)):  # some weights are high
        of_labelled, of_bare = loop.means(counts)
        assert of_bare == pytest.approx(of_labelled, rel=apart)


FEW = [SCORING[0], SCORING[4], *RECORDING[2:4]]
KINDS = [(each, "classes") for each in SCORING + RECORDING]
KINDS += [(each, kind) for each in FEW for kind in ("tokens", "yes or no")]


@pytest.mark.parametrize(("strategy", "kind"), KINDS)
def test_rows_without_a_target_come_as_often_and_with_the_same_weights(strategy, kind):
    check_rates(Loop(strategy, kind))


@pytest.mark.parametrize("strategy", FEW, ids=lambda each: each.name)
def test_a_class_index_of_the_models_may_stand_for_no_target(strategy):
    check_rates(Loop(strategy, ignored=CLASSES - 1))


@pytest.mark.parametrize("strategy", SCORING[:2], ids=lambda each: each.name)
def test_where_hardly_any_example_has_a_target_the_rate_stays(strategy):
    most, nearly_all = (Loop(strategy, share=share).epochs(6) for share in (0.8, 0.97))
    assert nearly_all.means(nearly_all.visits)[1] == pytest.approx(most.means(most.visits)[1], 0.15)


@pytest.mark.parametrize(("strategy", "visits"), [(SCORING[0], 6 / 3 + 2 / 3), (RECORDING[2], 6)])
def test_without_any_target_rows_are_drawn_by_chance(strategy, visits):
    loop = Loop(strategy, share=1.0).epochs(6)
    assert float(loop.visits.mean()) == pytest.approx(visits, 0.02)


def test_recorded_losses_of_rows_without_a_target_are_unknown_and_no_suspects():
    loop = Loop(sb.auto()).epochs(3)
    losses = loop.loader.ledger.recorded.observe()
    assert (np.isnan(losses.scores[0]) == loop.bare.numpy()).all()
    assert (losses.epochs[0] >= 0).all()
    assert len(sb.guide.audit(loop.loader.ledger)) == int((~loop.bare).sum())


def test_rows_without_a_target_are_of_no_class_so_that_the_majority_is_another():
    ledger = sb.scorers.Ledger(100, depth=2)
    every, losses = torch.arange(100), torch.full((100,), 0.2)
    losses[40:] = torch.nan
    for epoch in range(2):
        ledger.record(every, losses, epoch)
    classes = torch.full((100,), -100)
    classes[:40] = torch.arange(40) % 10 > 0  # 36 of 40
    ledger.classify(every, classes)
    known = sb.auto().scorer.start(sb.scorers.Context(4, None)).recall(ledger, 2)
    assert known[0] == losses[0]  # of the rare class
    assert (known[1:10] > losses[1:10]).all()


def test_a_proxy_learns_nothing_from_rows_without_a_target():
    def make():
        torch.manual_seed(1)
        return nn.Linear(16, CLASSES)

    proxies = []
    strategy = sb.proxy_sb(
        lambda: proxies.append(make()) or proxies[-1],
        lambda parameters: torch.optim.SGD(parameters, 0.1),
        rate=1 / 3,
    )
    check_rates(Loop(strategy))
    assert all(each.isfinite().all() and each.abs().max() < 99 for each in proxies[0].parameters())
