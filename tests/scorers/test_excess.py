"""The part of a loss that is above a reference model's."""

import math

import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, flat, losses_by_number, select
from fixture_memory import begin
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
    loader = DataLoader(Numbered(24), 4, sampler=sampler, num_workers=workers)
    reference = torch.rand(24, generator=torch.Generator().manual_seed(5))
    selecting = select(loader, sb.rho_loss(reference, 1 / 3))
    excess = losses_by_number(None, (None, torch.arange(24))) - reference
    trained = flat([batch[1].tolist() for batch in selecting])
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
    assert recalled(scorer, ledger, 5) == [math.inf] * 4


def test_an_example_that_was_rescored_but_never_trained_on_is_trained_on():
    ledger = sb.scorers.Ledger(2, first=True)
    ledger.scored.file(torch.tensor([0, 1]), torch.tensor([1.0, 2.0]), 1)
    ledger.record(torch.tensor([0]), torch.tensor([4.0]), 0)
    rescored = sb.scorers.Recorded(rescore=sb.scorers.Forward())
    assert recalled(sb.scorers.Excess(None, rescored), ledger) == [-3.0, math.inf]
