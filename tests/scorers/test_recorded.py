"""Selection by the losses that training computed anyway."""

import math

import pytest
import torch
from fixture_loaders import Numbered, losses_by_number, select
from fixture_memory import Loop, strategy
from hypothesis import given
from hypothesis import strategies as st
from reference_memory import PlainLedger, given_up
from torch import nn
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop._core.types import NO_TARGET
from selective_backprop.scorers import _giving_up, _learned

HARDEST = sb.selectors.Top(1 / 2)
EXAMPLES = 6


def begin(scorer: sb.scorers.AbstractScorer) -> sb.scorers.RunningScorer:
    return scorer.start(
        sb.scorers.Context(
            2, 4, nn.Identity(), losses=lambda model, batch: batch, examples=EXAMPLES
        )
    )


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, EXAMPLES - 1))), max_size=6),
    st.none() | st.integers(1, 4),
)
def test_an_example_is_judged_by_its_last_loss_and_infinitely_hard_without_one(filings, max_age):
    ledger, twin = sb.scorers.Ledger(EXAMPLES), PlainLedger(EXAMPLES, 1)
    for number, (epoch, indices) in enumerate(sorted(filings, key=lambda filing: filing[0])):
        keys, losses = sorted(indices), [float(number)] * len(indices)
        ledger.recorded.file(torch.tensor(keys, dtype=torch.int64), torch.tensor(losses), epoch)
        twin.file(keys, losses, epoch)
    found = begin(sb.scorers.Recorded(max_age)).recall(ledger, 10).tolist()
    for index, loss in enumerate(found):
        newest = twin.newest(index)
        known = newest is not None and (max_age is None or 10 - newest[1] <= max_age)
        assert loss == (newest[0] if known else math.inf)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, EXAMPLES - 1))), max_size=8),
    st.integers(2, 3),
    st.integers(0, 2**32),
)
def test_an_example_is_judged_by_the_highest_of_its_last_losses_or_of_those_it_has(
    filings, count, seed
):
    ledger = sb.scorers.Ledger(EXAMPLES, count)
    lasts: list[list[float]] = [[] for _ in range(EXAMPLES)]
    generator = torch.Generator().manual_seed(seed)
    for epoch, indices in sorted(filings, key=lambda filing: filing[0]):
        keys = sorted(indices)
        losses = torch.rand(len(keys), generator=generator)
        ledger.recorded.file(torch.tensor(keys, dtype=torch.int64), losses, epoch)
        for key, loss in zip(keys, losses.tolist(), strict=True):
            lasts[key].append(loss)
    found = begin(sb.scorers.Recorded(highest_of=count)).recall(ledger, 10).tolist()
    assert found == [max(each[-count:], default=math.inf) for each in lasts]


LEARNED, UNSURE, FAR = 0.1, 1.0, 3.0


def recall_of(lasts, epoch=9, **options):
    """What is recalled of examples whose last losses were these, newest last."""
    depth = options.setdefault("highest_of", 2)
    return begin(sb.scorers.Recorded(**options)).recall(ledger_of(lasts, depth), epoch).tolist()


def ledger_of(lasts, depth):
    ledger = sb.scorers.Ledger(len(lasts), depth)
    for position in range(max(map(len, lasts))):
        filed = [(i, losses[position]) for i, losses in enumerate(lasts) if position < len(losses)]
        keys, losses = zip(*filed, strict=True)
        ledger.recorded.file(torch.tensor(keys), torch.tensor(losses), position)
    return ledger


def crowd(*, stay, recover, learned=60, unsure=5):
    """So many examples that are far off and stay so or recover, and so many others."""
    return [
        *([[FAR, FAR]] * stay),
        *([[FAR, LEARNED]] * recover),
        *([[UNSURE, LEARNED]] * learned),
        *([[UNSURE, UNSURE]] * unsure),
    ]


@pytest.mark.parametrize(
    ("lasts", "gives_up"),
    [
        (crowd(stay=40, recover=0), True),
        (crowd(stay=40, recover=1), True),  # 2 of 42
        (crowd(stay=40, recover=2), False),  # 3 of 43: hard ones, on their way
        (crowd(stay=19, recover=0), False),  # 1 of 20: too few to tell
        (crowd(stay=20, recover=0), True),
        (crowd(stay=40, recover=0, learned=40, unsure=5), False),  # less than half are learned
        (crowd(stay=40, recover=0, learned=45, unsure=5), True),
    ],
)
def test_what_does_not_recover_is_given_up_where_next_to_nothing_does(lasts, gives_up):
    found = recall_of(lasts, give_up=0.05)
    stays = [loss for loss, (before, last) in zip(found, lasts, strict=True) if last == FAR]
    assert stays == [-math.inf if gives_up else FAR] * len(stays)
    others = [(loss, each) for loss, each in zip(found, lasts, strict=True) if each[1] != FAR]
    assert all(loss == pytest.approx(max(each)) for loss, each in others)


def test_the_limit_is_the_lowest_from_which_on_too_few_recover():
    near = [[2.0, 2.0]] * 20 + [[2.0, LEARNED]] * 20  # which do recover
    lasts = [*crowd(stay=40, recover=0), *near]
    found = recall_of(lasts, give_up=0.05)
    assert found[:40] == [-math.inf] * 40
    assert found[-40:] == [2.0] * 40
    slow = [[2.0, 2.0]] * 60 + [[2.0, LEARNED]] * 2  # 3 of 103 with those further off
    found = recall_of([*crowd(stay=40, recover=0, learned=120), *slow], give_up=0.05)
    assert found[:40] == [-math.inf] * 40
    assert found[-62:] == [-math.inf] * 60 + [2.0] * 2


def test_one_loss_that_is_far_off_or_two_that_were_not_give_nothing_up():
    once, near = [[LEARNED, FAR]] * 5, [[0.5, UNSURE]] * 20
    lasts = [*([[FAR, FAR]] * 40), *([[LEARNED, LEARNED]] * 90), *once, *near]
    found = recall_of(lasts, give_up=0.05)
    assert found[:40] == [-math.inf] * 40
    assert found[-25:] == [FAR] * 5 + [UNSURE] * 20


def test_what_was_given_up_counts_again_once_a_loss_is_nearer():
    lasts = crowd(stay=40, recover=0)
    lasts[0] = [FAR, UNSURE]
    assert recall_of(lasts, give_up=0.05)[:2] == [FAR, -math.inf]


def test_what_was_given_up_has_a_turn_in_each_max_age_epochs_a_few_at_a_time():
    lasts = crowd(stay=40, recover=0)
    turns = [recall_of(lasts, give_up=0.05, max_age=20, epoch=e)[:40] for e in range(2, 22)]
    for scores in turns:
        assert scores.count(FAR) == 2
        assert scores.count(-math.inf) == 38
    assert all(each.count(FAR) == 1 for each in zip(*turns, strict=True))
    # And what is too old to be believed is trained on all the same.
    assert recall_of(lasts, give_up=0.05, max_age=7)[:40] == [math.inf] * 40


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, math.log(2), 0.7, 2.3, math.log(10), 9.0]), max_size=4),
        min_size=1,
        max_size=60,
    ).filter(any),
    st.sampled_from([0.02, 0.2, 0.9]),
    st.integers(2, 3),
    st.sampled_from([1, 7, 2**18]),
    st.sampled_from([0, 1, 64]),
)
def test_who_is_given_up_is_who_the_plain_rule_gives_up(lasts, share, count, chunk, together):
    ends = [losses[-count:] for losses in lasts]
    whole = [losses if len(losses) == count else [] for losses in ends]
    lost = given_up(whole, share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_giving_up, "CHUNK", chunk)
        patch.setattr(_giving_up, "MOST_SORTED", 0 if together else 60)
        patch.setattr(_giving_up, "TOGETHER", together)
        found = recall_of(ends, highest_of=count, give_up=share)
    expected = [
        -math.inf if i in lost else max(losses, default=math.inf) for i, losses in enumerate(ends)
    ]
    assert found == pytest.approx(expected)


CLASSES = st.lists(st.sampled_from([0.0, 1.0, 7.0]), min_size=60, max_size=60)


@given(CLASSES, st.lists(st.sampled_from([LEARNED, FAR]), min_size=60, max_size=60))
def test_nothing_is_given_up_in_a_class_of_which_less_than_half_is_learned(classes, newest):
    lasts = [[FAR, loss] for loss in newest] + crowd(stay=40, recover=0, learned=200)
    ledger = ledger_of(lasts, depth=2)
    known = torch.tensor([*classes, *[9.0] * 245])  # class 9, of which most is learned
    ledger.classify(torch.arange(len(known)), known)
    found = begin(sb.scorers.Recorded(highest_of=2, give_up=0.9)).recall(ledger, 9)
    for number in {*classes}:
        own = [i for i, each in enumerate(classes) if each == number]
        learned = sum(newest[i] == LEARNED for i in own)
        lost = [float(found[i]) == -math.inf for i in own]
        assert sum(lost) == (len(own) - learned if 2 * learned >= len(own) else 0)
    assert (found[60:100] == -math.inf).all()


@pytest.mark.parametrize("told", [0, 100])
def test_examples_without_a_class_are_one_class_and_classes_may_be_far_apart(told):
    """Those that are told are of two classes, of which one is learned; so are the others."""
    lasts = [*([[FAR, FAR]] * 40), *([[FAR, LEARNED]] * 60), *crowd(stay=40, recover=0, learned=60)]
    unseen = [[]] * 200  # count for none
    ledger = ledger_of(lasts + unseen, depth=2)
    ledger.classify(torch.arange(told), torch.tensor([0] * 60 + [2**62] * 40)[:told])
    found = begin(sb.scorers.Recorded(highest_of=2, give_up=0.5)).recall(ledger, 9)
    lost = [int((part == -math.inf).sum()) for part in (found[:60], found[60:100], found[100:])]
    assert lost == ([0, 0, 40] if told else [40, 0, 40])


@given(
    st.lists(st.floats(0, 4, width=32), min_size=1, max_size=20),
    st.integers(0, 30),
    st.sampled_from([1.0, 8.0]),
)
def test_low_losses_rise_with_visits_to_that_of_an_even_chance(losses, visits, fades):
    ledger = ledger_of([*[[loss] for loss in losses], [], []], depth=1)  # two are never drawn
    for _ in range(visits):
        ledger.count(torch.arange(len(losses)))
    *found, _, _ = begin(sb.scorers.Recorded(fades=fades)).recall(ledger, 1).tolist()
    left = 1 - min(1, max(0, visits - 1) / fades)
    for loss, risen in zip(losses, found, strict=True):
        error = -math.expm1(-loss)
        expected = loss if error > 0.5 else -math.log(1 - 0.5 * (2 * error) ** left)
        assert risen == pytest.approx(expected, rel=1e-4, abs=1e-6)


@given(
    st.lists(st.floats(0, 4, width=32), min_size=1, max_size=20),
    st.integers(1, 60),
    st.integers(0, 60),
    st.sampled_from([1, 7, 2**18]),
)
def test_low_losses_rise_in_a_class_of_more_than_half(losses, others, unknown, chunk):
    """An error as large as that of always guessing the class counts as a half."""
    frequent, few = [[loss] for loss in losses], [[0.1], [2.0]]
    lasts = [*few, *frequent, *[[0.3]] * (others - 1), *[[0.2]] * unknown]
    ledger = ledger_of(lasts, depth=1)
    told = torch.tensor([3, 5, *[5] * len(losses), *range(7, 6 + others)])
    ledger.classify(torch.arange(len(told)), told)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_giving_up, "CHUNK", chunk)
        rare, *found = begin(sb.scorers.Recorded(prior=True)).recall(ledger, 1).tolist()
    share = (len(losses) + 1) / (len(losses) + 1 + others)
    for (loss,), risen in zip([[2.0], *frequent], found, strict=False):
        error = -math.expm1(-loss)
        least = min(0.5, error * max(1, 0.5 / (1 - share)))
        assert risen == pytest.approx(-math.log(1 - max(error, least)), rel=1e-4, abs=1e-6)
    assert [rare, *found[len(losses) + 1 :]] == pytest.approx(
        [0.1] + [0.3] * (others - 1) + [0.2] * unknown
    )


def test_a_majority_is_found_among_many_and_one_class_alone_is_never_learned(monkeypatch):
    monkeypatch.setattr(_learned, "LOOKED_AT", 50)
    classes = torch.tensor([0, 1, 2, 2, 2, 2] * 100)
    ledger = ledger_of([[0.1]] * 600, depth=1)
    ledger.classify(torch.arange(600), classes)
    found = begin(sb.scorers.Recorded(prior=True)).recall(ledger, 1)
    raised = -math.log1p(0.5 / (1 / 3) * math.expm1(-0.1))
    expected = torch.where(classes == 2, raised, 0.1)
    torch.testing.assert_close(found, expected)
    ledger.classify(torch.arange(600), torch.full((600,), 4))
    assert begin(sb.scorers.Recorded(prior=True)).recall(ledger, 1).tolist() == pytest.approx(
        [math.log(2)] * 600
    )


def test_without_classes_nothing_rises():
    ledger = ledger_of([[0.1], [2.0]], depth=1)
    assert begin(sb.scorers.Recorded(prior=True)).recall(ledger, 1).tolist() == pytest.approx(
        [0.1, 2.0]
    )


def test_recovering_takes_two_losses_to_be_seen():
    with pytest.raises(sb.ConfigurationError, match="write highest_of=2"):
        sb.scorers.Recorded(give_up=0.05)


def test_a_loss_that_is_not_a_number_counts_as_that_of_a_row_without_a_target():
    ledger = sb.scorers.Ledger(EXAMPLES)
    ledger.recorded.file(torch.tensor([2]), torch.tensor([math.nan]), 0)
    for epoch in (1, 9):
        known = begin(sb.scorers.Recorded(max_age=4)).recall(ledger, epoch).tolist()
        assert known.pop(2) == NO_TARGET
        assert known == [math.inf] * (EXAMPLES - 1)


def test_without_a_scorer_for_what_was_left_out_it_takes_no_scores():
    with pytest.raises(sb.ConfigurationError, match="takes no scores"):
        begin(sb.scorers.Recorded()).score(torch.ones(2), None)
    assert begin(sb.scorers.Recorded(rescore=sb.scorers.Forward())).score(
        torch.ones(2), None
    ).tolist() == [1, 1]


@pytest.mark.parametrize(
    "rescore", [sb.scorers.Recorded(), sb.scorers.Stale(sb.scorers.Forward()), "forward"]
)
def test_what_cannot_score_what_was_left_out_is_refused(rescore):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=r"scorer|remembers scores itself"):
        sb.scorers.Recorded(rescore=rescore)


def test_the_hardest_by_the_recorded_losses_are_selected_before_they_are_loaded():
    loop = Loop(strategy(sb.scorers.Recorded(), HARDEST), 24, loads=12).epochs(3)
    assert sorted(loop.trained[0]) != sorted(loop.trained[1])
    known = losses_by_number(None, (None, torch.arange(24)))
    # what was left out at first is of unknown loss, and is trained on next
    assert {*loop.trained[0]} | {*loop.trained[1]} == {*range(24)}
    assert len(loop.trained[0]) == len(loop.trained[2]) == 12
    dealt = loop.sampler.passes[2]
    hardest = sorted(sorted(dealt, key=lambda index: -known[index])[:12])
    assert sorted(loop.trained[2]) == hardest
    assert loop.data.reads.sum() == loop.loader.stats.loaded == 36
    assert loop.loader.stats.scored == loop.calls == 0


def test_what_was_not_trained_on_for_too_long_is_trained_on_again():
    loop = Loop(strategy(sb.scorers.Recorded(max_age=2), HARDEST), 24, loads=12).epochs(9)
    for index in range(24):
        trained = [epoch for epoch in range(9) if index in loop.trained[epoch]]
        assert max(b - a for a, b in zip([-1, *trained], [*trained, 9], strict=True)) <= 3


def test_recording_nothing_is_noticed_when_the_second_epoch_begins():
    loop = Loop(strategy(sb.scorers.Recorded()), records=False).epoch()
    with pytest.raises(sb.LossError, match="none was recorded"):
        loop.epoch()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("held", [1, 3])
def test_losses_are_recorded_in_any_order_by_a_consumer_that_holds_batches(held, workers):
    def chosen(held: int, workers: int) -> list[list[int]]:
        loop = Loop(strategy(sb.scorers.Recorded(), HARDEST), 24, workers=workers, records=False)
        found = []
        for _ in range(4):
            waiting, trained = [], []
            for (_, targets), selection in loop.loader:
                trained += targets.tolist()
                waiting.append((selection, losses_by_number(None, (None, targets))))
                if len(waiting) == held:
                    for late in reversed(waiting):
                        loop.loader.record(*late)
                    waiting.clear()
            for late in waiting:
                loop.loader.record(*late)
            found.append(trained)
        return found

    assert chosen(held, workers) == chosen(1, 0)


def test_a_part_of_a_batch_may_be_recorded():
    loop = Loop(strategy(sb.scorers.Recorded(), HARDEST), 24, records=False)
    for (_, targets), selection in loop.loader:
        part = sb.Selection(selection.indices[:1], selection.weights[:1])
        loop.loader.record(part, targets[:1].float())
    observed = loop.loader._parts.ledger.recorded.observe()
    assert int((observed.epochs[0] == 0).sum()) == 3


def test_rows_that_were_drawn_twice_are_recorded_with_the_others():
    recorded = sb.scorers.Recorded()
    loop = Loop(strategy(recorded, sb.selectors.Proportional(3.0)), 24).epochs(4)
    assert any(len({*epoch}) < len(epoch) for epoch in loop.trained)
    observed = loop.loader._parts.ledger.recorded.observe()
    trained = {index for epoch in loop.trained for index in epoch}
    assert {index for index in range(24) if observed.epochs[0, index] >= 0} == trained


@pytest.mark.parametrize(("policy", "refused"), [("raise", True), ("skip", False)])
def test_a_recorded_loss_that_is_not_finite_is_refused_or_unknown_by_policy(policy, refused):
    loop = Loop(strategy(sb.scorers.Recorded()), 24, options={"nonfinite": policy}, records=False)
    _, selection = next(iter(loop.loader))
    losses = torch.tensor([1.0, math.nan, math.inf, 2.0])
    if refused:
        named = selection.indices[1:3].tolist()
        with pytest.raises(sb.LossError, match="2 of 4") as caught:
            loop.loader.record(selection, losses)
        assert str(named) in str(caught.value)
        assert loop.loader._parts.ledger.recorded.empty
    else:
        loop.loader.record(selection, losses)
        found = loop.loader._parts.ledger.recorded.observe().scores[0, selection.indices]
        assert [None if math.isnan(loss) else loss for loss in found] == [1.0, None, None, 2.0]


@pytest.mark.parametrize("losses", [torch.ones(3), torch.ones(4, 2), torch.tensor(1.0), [1.0] * 4])
def test_what_is_not_one_loss_per_row_is_not_recorded(losses):
    loop = Loop(strategy(sb.scorers.Recorded()), 24)
    with unhooked():
        _, selection = next(iter(loop.loader))
        with pytest.raises(sb.LossError, match=r"per example|tensor of losses"):
            loop.loader.record(selection, losses)


def test_recording_leaves_the_gradients_alone():
    loop = Loop(strategy(sb.scorers.Recorded()), 24, records=False)
    _, selection = next(iter(loop.loader))
    weight = torch.ones(4, requires_grad=True)
    losses = weight * 2
    loop.loader.record(selection, losses)
    losses.sum().backward()
    assert weight.grad.tolist() == [2.0] * 4


def test_a_strategy_that_remembers_nothing_lets_recorded_losses_pass():
    loader = select(DataLoader(Numbered(8), 4), sb.traditional(), with_selection=True)
    for _, selection in loader:
        loader.record(selection, torch.ones(4))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("leftovers", sb.Leftovers)
def test_at_an_epochs_end_exactly_what_was_left_out_is_scored_and_not_handed_out(
    leftovers, workers
):
    scorer = sb.scorers.Recorded(rescore=sb.scorers.Forward())
    options = {"leftovers": leftovers}
    loop = Loop(strategy(scorer, HARDEST), 22, workers=workers, options=options)
    for _ in range(4):
        loop.data.reads.zero_()
        before, waited = loop.loader.stats, loop.waiting()
        loop.epoch()
        after, waits = loop.loader.stats, loop.waiting()
        came = {*loop.sampler.passes[-1]} | {*waited}
        left_out = came - {*loop.trained[-1]} - {*waits}
        assert sorted(loop.scored[-1]) == sorted(left_out)
        assert after.scored - before.scored == len(left_out)
        assert after.loaded - before.loaded == len(left_out) + len(loop.trained[-1])
        assert after.loaded - before.loaded == loop.data.reads.sum()
        assert after.kept - before.kept == len(loop.trained[-1])
    observed = loop.loader._parts.ledger.scored.observe()
    assert all(observed.epochs[0, index] == 3 for index in loop.scored[-1])


def test_what_was_scored_at_the_end_is_judged_by_that_score_in_the_next_epoch():
    scorer = sb.scorers.Recorded(rescore=sb.scorers.Forward())
    loop = Loop(strategy(scorer, HARDEST), 24, loads=12).epoch()
    known = loop.loader._parts.pipeline.memory.recall(1)
    observed = loop.loader._parts.ledger.scored.observe().scores[0]
    for index in loop.scored[0]:
        assert float(known[index]) == observed[index]
    assert bool(known.isfinite().all())
