"""Checks of cheap scorers: when they are made, what they find, and what is said of it."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, Stateless, select, selective
from fixture_memory import Loop, strategy
from fixture_pipelined import Coarse
from torch import Tensor, nn
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.experimental._approximate import CheckedScorer

ROWS = 12
EXACT = torch.arange(float(ROWS))
SWAPPED = EXACT[torch.tensor([0, 1, 2, 3, 4, 5, 6, 8, 7, 9, 10, 11])]  # across the highest third


class Told(Stateless, sb.scorers.RunningScorer):
    """Scores as it is told, and notes for which batches."""

    def __init__(self, tell: Callable[[int], Tensor]) -> None:
        self.tell = tell
        self.asked: list[int] = []

    def score(self, batch, indices):
        self.asked.append(batch)
        return self.tell(batch)


def begin(check, cheap, rate=1 / 3, stride=1) -> tuple[CheckedScorer, Told]:
    exact = Told(lambda batch: EXACT)
    said = {"name": "Fixture", "advice": "Do better"}
    return CheckedScorer(Told(cheap), exact, check, rate, stride=stride, **said), exact


def test_the_first_batches_are_scored_both_ways_and_averaged_and_no_others():
    running, exact = begin(sb.experimental.Check(4), lambda batch: SWAPPED if batch % 2 else EXACT)
    for batch in range(10):
        assert (running.agreement is not None) == (batch >= 4)
        scores = running.score(batch, None)
        assert torch.equal(scores, SWAPPED if batch % 2 else EXACT)
    assert exact.asked == [0, 1, 2, 3]
    assert running.checked == 4 * ROWS
    found = running.agreement
    assert found.overlap == pytest.approx((1 + 3 / 4) / 2)
    assert found.correlation == pytest.approx(1 - 6 * 2 / (ROWS * (ROWS**2 - 1)) / 2)
    assert (found.rate, found.batches, found.candidates) == (1 / 3, 4, 4 * ROWS)


@pytest.mark.parametrize("least", [0.0, 0.75, 0.8])
def test_low_agreement_is_warned_of_with_numbers_and_advice(least):
    running, exact = begin(sb.experimental.Check(2, least=least), lambda batch: SWAPPED, stride=4)
    running.score(0, None)
    with pytest.warns(sb.SelectionWarning) if least > 0.75 else nullcontext() as caught:
        for batch in range(1, 9):
            running.score(batch, None)
    assert exact.asked == [0, 4]
    assert running.agreement.overlap == 0.75
    said = str(caught[0].message) if caught else "no less than asked for"
    for part in ("Fixture", "75%", "highest 33%", "least=0.8", "0.99", "2 batches, 24 candidates"):
        assert (part in said) == (least > 0.75)
    assert ("Check(least=" in said) == (least > 0.75)


@pytest.mark.parametrize(("known", "used"), [(0.25, 0.25), (None, 1 / 3)])
def test_batches_without_candidates_do_not_count_and_the_share_is_known_or_a_third(known, used):
    cheap = lambda batch: EXACT if batch else EXACT[:0]  # noqa: E731
    running, exact = begin(sb.experimental.Check(1), cheap, rate=known)
    running.score(0, None)
    assert exact.asked == []
    running.score(1, None)
    assert (running.agreement.candidates, running.agreement.rate) == (ROWS, used)


@pytest.mark.parametrize("stop", [0, 2, 3, 5])
def test_a_check_goes_on_where_its_state_was_taken(stop, tmp_path):
    def run(running: CheckedScorer, first: int, last: int) -> list[object]:
        found = []
        for batch in range(first, last):
            running.score(batch, None)
            found.append((running.agreement, running.checked))
        return found

    tell = lambda batch: torch.frac(EXACT * 0.618 + batch * 0.2)  # noqa: E731
    check = sb.experimental.Check(3, least=0)
    running, whole = begin(check, tell)
    run(running, 0, stop)
    torch.save(running.state_dict(), tmp_path / "state")
    expected = run(running, stop, 12)
    resumed, exact = begin(check, tell)
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert run(resumed, stop, 12) == expected
    assert exact.asked == [batch for batch in whole.asked if batch >= stop]


PROXY = sb.scorers.Proxy(nn.Identity, torch.optim.SGD)
REFERENCE = sb.scorers.ReferenceLosses(torch.ones(4))


@pytest.mark.parametrize(
    ("scorer", "options", "message"),
    [
        (sb.scorers.Stale(sb.scorers.Forward()), {}, "remembers scores itself"),
        ("forward", {}, "is no scorer"),
        (sb.scorers.Forward(), {"check": 8}, "check=8"),
        (sb.experimental.Pipelined(sb.scorers.Forward(), 2), {}, "a copy already; wrap Forward"),
        (PROXY, {}, "of its own"),
        (sb.scorers.Excess(REFERENCE, PROXY), {}, "of its own"),
    ],
)
def test_what_cannot_be_wrapped_or_checked_by_is_refused(scorer, options, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.experimental.Pipelined(scorer, 2, **options)


def make_loader(scorer: sb.scorers.AbstractScorer) -> sb.SelectiveLoader:
    loader = DataLoader(Numbered(48), ROWS, sampler=NotedSampler(48))
    return select(loader, selective(1 / 3, scorer=scorer))


def test_the_loader_tells_the_agreement_and_counts_what_was_scored_twice():
    loader = make_loader(Coarse(6, sb.experimental.Check(4)))
    batches = iter(loader)
    next(batches)
    assert loader.agreement is None
    list(batches)
    assert loader.agreement.batches == 4
    assert loader.agreement.rate == pytest.approx(1 / 3)
    assert 0.8 < loader.agreement.overlap < 1
    assert (loader.stats.scored, loader.stats.checked) == (48, 48)
    list(loader)
    assert (loader.stats.scored, loader.stats.checked) == (96, 48)


def test_agreement_changes_neither_what_is_selected_nor_the_state_that_is_gone_on_from():
    check = sb.experimental.Check(3, least=0)
    checked, unchecked = make_loader(Coarse(6, check)), make_loader(Coarse(6, None))
    assert [batch[1].tolist() for batch in checked] == [batch[1].tolist() for batch in unchecked]
    assert (unchecked.agreement, unchecked.stats.checked) == (None, 0)
    resumed = make_loader(Coarse(6, check))
    resumed.load_state_dict(checked.state_dict())
    assert resumed.agreement == checked.agreement
    assert resumed.stats == checked.stats


AROUND = [
    lambda scorer: sb.scorers.Stale(scorer, 2),
    lambda scorer: sb.scorers.Predicted(scorer),
    lambda scorer: sb.scorers.Recorded(max_age=1, rescore=scorer),
    lambda scorer: sb.scorers.Excess(sb.scorers.ReferenceLosses(torch.zeros(60)), scorer),
]


@pytest.mark.parametrize("around", AROUND)
def test_what_wraps_a_cheap_scorer_tells_its_agreement(around):
    loop = Loop(strategy(around(Coarse(40, sb.experimental.Check(3, least=0))))).epochs(3)
    assert loop.loader.agreement.batches == 3
    assert 0 < loop.loader.stats.checked < loop.loader.stats.scored
