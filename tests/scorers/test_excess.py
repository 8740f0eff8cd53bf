"""Scores by a second loss: a reference model's, or that of a small model that learns beside."""

import math
from typing import ClassVar

import fixture_loaders
import pytest
import torch
from fixture_extend import NAMES
from fixture_loaders import NotedSampler, fixture_data, fresh_net, same_tensors, select, streams
from fixture_memory import begin
from fixture_training import make_optimizer as momentum
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb

REFERENCE = sb.scorers.ReferenceLosses(torch.arange(24.0) / 7)


def test_each_row_is_compared_with_its_own_reference():
    running = begin(sb.scorers.Excess(REFERENCE, sb.scorers.Forward()), 24)
    indices = torch.tensor([5, 0, 23, 5])
    scores = running.score(torch.tensor([1.0, 2.0, 3.0, 4.0]), indices)
    expected = [loss - index / 7 for loss, index in zip((1, 2, 3, 4), (5, 0, 23, 5), strict=True)]
    assert scores.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_rows_furthest_above_their_reference_are_trained_on(workers):
    sampler = NotedSampler(24)
    loader = DataLoader(fixture_loaders.Numbered(24), 4, sampler=sampler, num_workers=workers)
    reference = torch.rand(24, generator=torch.Generator().manual_seed(5))
    selecting = select(loader, sb.rho_loss(reference, 1 / 3))
    excess = fixture_loaders.losses_by_number(None, (None, torch.arange(24))) - reference
    trained = fixture_loaders.flat([batch[1].tolist() for batch in selecting])
    [dealt] = sampler.passes
    expected = [
        index
        for start in (0, 12)
        for index in sorted(dealt[start : start + 12], key=lambda index: -excess[index])[:4]
    ]
    assert sorted(trained) == sorted(expected)


@pytest.mark.parametrize("examples", [23, 25, None])
def test_references_of_another_data_set_are_refused(examples):
    with pytest.raises(sb.ConfigurationError, match=f"of 24 .*{examples}"):
        begin(sb.scorers.Excess(REFERENCE, sb.scorers.Forward()), examples)


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (torch.ones(2, 2), r"\(2, 2\)"),
        (torch.tensor(1.0), "one number for"),
        (torch.ones(0), "one number for"),
        ([1.0, 2.0], "got list"),
        (torch.tensor([1.0, math.nan, math.inf]), r"2 of 3 .*\[1, 2\]"),
    ],
)
def test_what_is_not_one_finite_loss_per_example_is_refused(losses, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.scorers.ReferenceLosses(losses)


def test_references_compare_by_value_and_are_a_copy():
    losses = torch.arange(24.0) / 7
    one = sb.scorers.ReferenceLosses(losses)
    assert one == REFERENCE
    assert hash(one) == hash(REFERENCE)
    assert repr(one) == repr(REFERENCE)
    assert len(one) == 24
    losses += 1
    assert one == REFERENCE
    other = sb.scorers.ReferenceLosses(losses)
    assert other != one
    assert repr(other) != repr(one)


def test_parts_that_are_something_else_are_refused():
    with unhooked():
        with pytest.raises(sb.ConfigurationError, match="is no ReferenceLosses"):
            sb.scorers.Excess(torch.ones(3), sb.scorers.Forward())
        with pytest.raises(sb.ConfigurationError, match=r"first recorded.*Excess\(None, Recorded"):
            sb.scorers.Excess(None, sb.scorers.Forward())
        for scorer in (None, sb.scorers.Stale(sb.scorers.Forward())):
            with pytest.raises(sb.ConfigurationError, match=r"is no scorer|remembers scores"):
                sb.scorers.Excess(REFERENCE, scorer)


def recalled(scorer: sb.scorers.Excess, ledger: sb.scorers.Ledger, epoch: int = 1) -> list[float]:
    scores = begin(scorer, ledger.examples).recall(ledger, epoch)
    assert scores is not None
    return scores.tolist()


def test_remembered_losses_are_compared_with_the_reference_and_what_is_unknown_is_infinite():
    ledger = sb.scorers.Ledger(24)
    ledger.record(torch.tensor([3, 7]), torch.tensor([2.0, 0.5]), 0)
    scores = recalled(sb.scorers.Excess(REFERENCE, sb.scorers.Recorded()), ledger)
    assert [scores[3], scores[7]] == pytest.approx([2 - 3 / 7, 0.5 - 1])
    assert set(scores[:3] + scores[4:7] + scores[8:]) == {math.inf}


def test_remembered_losses_are_compared_with_each_examples_own_first():
    ledger = sb.scorers.Ledger(4, first=True)
    for epoch, losses in enumerate([(3.0, 1.0, math.nan), (2.0, 1.5, 4.0), (0.5, 1.25, 3.0)]):
        ledger.record(torch.arange(3), torch.tensor(losses), epoch)
    scorer = sb.scorers.Excess(None, sb.scorers.Recorded(max_age=2))
    assert recalled(scorer, ledger, 3) == [-2.5, 0.25, -1.0, math.inf]
    assert recalled(NAMES["Risen"](), ledger) == [-2.5, 0.25, -1.0, math.inf]
    assert recalled(scorer, ledger, 5) == [math.inf] * 4


def test_an_example_that_was_rescored_but_never_trained_on_is_trained_on():
    ledger = sb.scorers.Ledger(2, first=True)
    ledger.scored.file(torch.tensor([0, 1]), torch.tensor([1.0, 2.0]), 1)
    ledger.record(torch.tensor([0]), torch.tensor([4.0]), 0)
    rescored = sb.scorers.Recorded(rescore=sb.scorers.Forward())
    assert recalled(sb.scorers.Excess(None, rescored), ledger) == [-3.0, math.inf]


class Small(nn.Module):
    """A small model with batch statistics, and dropout that draws from the global stream."""

    made: ClassVar[list["Small"]] = []

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(11)
        self.layers = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(dropout))
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)
        Small.made.append(self)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)


def plain_loader(workers: int = 0) -> DataLoader:
    return DataLoader(fixture_data(), 6, sampler=NotedSampler(40), num_workers=workers)


def make_loader(
    model: nn.Module, make=Small, *, workers: int = 0, warmup: int = 1
) -> sb.SelectiveLoader:
    schedule = sb.Schedule(warmup_epochs=warmup)
    strategy = sb.proxy_sb(make, momentum, rate=1 / 2, schedule=schedule)
    generator = torch.Generator().manual_seed(0)
    return sb.SelectiveLoader(
        plain_loader(workers), model, nn.CrossEntropyLoss(), strategy, generator=generator
    )


def learned(loader: sb.SelectiveLoader) -> object:
    return fixture_loaders.bits(loader.state_dict()["parts"]["scorer"])


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch) -> None:
    model.train()
    optimizer.zero_grad()
    functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


@pytest.mark.parametrize("workers", [0, 2])
def test_it_learns_what_it_would_learn_by_hand_from_the_batches_that_are_yielded(workers):
    loader = make_loader(fresh_net(), workers=workers, make=lambda: Small(dropout=0.0))
    proxy, byhand = Small.made[-1], Small(dropout=0.0)
    optimizer = momentum(byhand.parameters())
    for _ in range(3):
        for batch in loader:
            step(byhand, optimizer, batch)
            assert same_tensors(proxy.state_dict(), byhand.state_dict())
    assert loader.stats.kept < loader.stats.candidates


def test_scores_are_the_small_models_losses_in_eval_mode():
    context = sb.scorers.Context(4, 8, fresh_net(), losses=fixture_loaders.cross_entropies)
    running = sb.scorers.Proxy(Small, momentum).start(context)
    small = Small.made[-1]
    inputs, targets = fixture_data().tensors
    running.learn((inputs[:8], targets[:8]))
    scores = running.score((inputs, targets), None)
    assert small.training
    small.eval()
    with torch.no_grad():
        expected = functional.cross_entropy(small(inputs), targets, reduction="none")
    assert torch.equal(scores, expected)


@pytest.mark.parametrize("warmup", [0, 1])
def test_the_model_and_the_global_streams_are_not_touched(warmup):
    model = fresh_net()
    model.layers[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(4)
    next(iter(plain_loader()))
    expected = streams()[:2]
    torch.manual_seed(4)
    next(iter(make_loader(model, warmup=warmup)))
    assert streams()[:2] == expected
    assert same_tensors(model.state_dict(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_it_learns_where_the_loop_runs_without_gradients():
    loader = make_loader(fresh_net(), warmup=0)
    before = learned(loader)
    with torch.no_grad():
        next(iter(loader))
    assert learned(loader) != before


@pytest.mark.parametrize(
    ("make_model", "make_optimizer", "name"),
    [(Small(), momentum, "make_model"), (None, momentum, "make_model"), (Small, 3, "make_opt")],
)
def test_what_makes_nothing_is_refused(make_model, make_optimizer, name):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"{name}.*function"):
        sb.scorers.Proxy(make_model, make_optimizer)


def test_what_stands_for_it_in_a_saved_state_is_the_same_in_every_process():
    assert repr(sb.scorers.Proxy(Small, momentum)) == "Proxy(model=Small, optimizer=make_optimizer)"
