"""A step may evaluate its loss several times; what is remembered is one loss for each hand-out."""

import pytest
import torch
from fixture_loaders import NotedSampler, bits, fixture_data, fresh_net
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb

EXAMPLES = 40
REMEMBERING = [
    sb.auto(),
    sb.recorded_sb(1 / 2),
    sb.tail_sft(),
    sb.stale_sb(1 / 2, epochs=2, recorded=True, spread=True),
]


def once(loss_fn, outputs, targets):
    loss_fn(outputs, targets).backward()


def three_times(loss_fn, outputs, targets):
    for _ in range(2):
        loss_fn(outputs, targets)
    loss_fn(outputs, targets).backward()


def in_parts(loss_fn, outputs, targets):
    """Gradient accumulation: the loss of a batch, a part at a time."""
    for part in (slice(0, 2), slice(2, None)):
        share = len(targets[part]) / len(targets)
        (loss_fn(outputs[part], targets[part]) * share).backward(retain_graph=True)


def run(strategy, train, rate):
    """Train a small net; return the batches, and what is remembered in the end."""
    model, batches = fresh_net(), []
    plain = DataLoader(fixture_data(), 6, sampler=NotedSampler(EXAMPLES))
    options = {"epochs": 6, "generator": torch.Generator().manual_seed(1), "quiet": True}
    loader = sb.SelectiveLoader(plain, model, nn.CrossEntropyLoss(), strategy, **options)
    loss_fn, optimizer = loader.loss_fn, torch.optim.SGD(model.parameters(), lr=rate)
    torch.manual_seed(5)
    for _ in range(6):
        for inputs, targets in loader:
            batches.append(inputs.clone())
            optimizer.zero_grad()
            train(loss_fn, model(inputs), targets)
            optimizer.step()
    return bits(batches), bits(loader.ledger.recorded.observe())


@pytest.mark.parametrize("strategy", REMEMBERING, ids=lambda each: each.name)
@pytest.mark.parametrize(("train", "rate"), [(three_times, 0.1), (in_parts, 0.0)])
def test_a_batch_that_passes_through_the_loss_several_times_counts_once(strategy, train, rate):
    assert run(strategy, train, rate) == run(strategy, once, rate)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_second_loss_of_a_hand_out_replaces_the_first_and_moves_none(depth):
    ledger = sb.scorers.Ledger(3, depth)
    rows = torch.tensor([0, 2])
    for epoch in range(3):
        ledger.hand_out(rows)
        for loss in (5.0, 4.0, 3.0):
            ledger.record(rows, torch.tensor([loss, -loss]) + 10 * epoch, epoch)
    observed = ledger.recorded.observe()
    assert observed.scores[:, 0].tolist() == [23.0, 13.0, 3.0][:depth]
    assert observed.scores[:, 2].tolist() == [17.0, 7.0, -3.0][:depth]
    assert observed.epochs[:, 0].tolist() == [2, 1, 0][:depth]


def test_which_examples_await_a_loss_is_part_of_the_state():
    ledger, other = sb.scorers.Ledger(3, depth=2), sb.scorers.Ledger(3, depth=2)
    rows = torch.tensor([0, 1])
    ledger.hand_out(rows)
    ledger.record(rows[:1], torch.tensor([1.0]), 0)
    other.load_state_dict(ledger.state_dict())
    for each in (ledger, other):
        each.record(rows, torch.tensor([2.0, 3.0]), 0)
        each.hand_out(rows)
        each.record(rows, torch.tensor([4.0, 5.0]), 1)
        assert each.recorded.observe().scores[:, :2].tolist() == [[4.0, 5.0], [2.0, 3.0]]
