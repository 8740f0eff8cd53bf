"""How `auto` scores examples: by their last two losses, against plain rules."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import given_up as plainly_given_up
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop._core.types import NO_TARGET
from selective_backprop.strategies._auto import rule
from selective_backprop.strategies._auto.rule import Unlearned, given_up

LONG = 2**15  # epochs for which a loss counts


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, 5))), min_size=1, max_size=8),
    st.integers(0, 2**32),
)
def test_an_example_is_judged_by_the_higher_of_its_last_two_losses_or_of_those_it_has(
    filings, seed
):
    ledger, lasts = sb.scorers.Ledger(6, 2), [[] for _ in range(6)]
    generator = torch.Generator().manual_seed(seed)
    for epoch, indices in sorted(filings, key=lambda filing: filing[0]):
        keys = sorted(indices)
        losses = 0.7 + torch.rand(len(keys), generator=generator)
        ledger.recorded.file(torch.tensor(keys, dtype=torch.int64), losses, epoch)
        for key, loss in zip(keys, losses.tolist(), strict=True):
            lasts[key].append(loss)
    found = recalled(ledger, 10)
    assert found == [max(each[-2:], default=math.inf) for each in lasts]


LEARNED, UNSURE, FAR = 0.1, 1.0, 3.0


def recalled(ledger, epoch=9, **options):
    running = Unlearned(**{"max_age": LONG} | options).start(sb.scorers.Context(2, None))
    return running.recall(ledger, epoch).tolist()


def recall_of(lasts, epoch=9, **options):
    """What is recalled of examples whose last losses were these, newest last."""
    return recalled(ledger_of(lasts), epoch, **options)


def ledger_of(lasts, depth=2):
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
    found = recall_of(lasts)
    stays = [loss for loss, (before, last) in zip(found, lasts, strict=True) if last == FAR]
    assert stays == [-math.inf if gives_up else FAR] * len(stays)
    others = [(loss, each) for loss, each in zip(found, lasts, strict=True) if each[1] != FAR]
    assert all(loss == pytest.approx(max(each)) for loss, each in others)


def test_the_limit_is_the_lowest_from_which_on_too_few_recover_and_both_losses_must_reach_it():
    near = [[2.0, 2.0]] * 20 + [[2.0, LEARNED]] * 20  # which do recover
    found = recall_of([*crowd(stay=40, recover=0), [FAR, UNSURE], [LEARNED, FAR], *near])
    assert found[:40] == [-math.inf] * 40
    assert found[-42:] == [FAR] * 2 + [2.0] * 40
    slow = [[2.0, 2.0]] * 60 + [[2.0, LEARNED]] * 2  # 3 of 103 with those further off
    found = recall_of([*crowd(stay=40, recover=0, learned=120), *slow])
    assert found[:40] == [-math.inf] * 40
    assert found[-62:] == [-math.inf] * 60 + [2.0] * 2


def test_what_was_given_up_has_a_turn_in_each_max_age_epochs_a_few_at_a_time():
    lasts = crowd(stay=40, recover=0)
    turns = [recall_of(lasts, max_age=20, epoch=e)[:40] for e in range(2, 22)]
    for scores in turns:
        assert scores.count(FAR) == 2
        assert scores.count(-math.inf) == 38
    assert all(each.count(FAR) == 1 for each in zip(*turns, strict=True))
    # And what is too old to be believed is trained on all the same.
    assert recall_of(lasts, max_age=7)[:40] == [math.inf] * 40


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, math.log(2), 0.7, 2.3, math.log(10), 9.0]), max_size=4),
        min_size=1,
        max_size=60,
    ).filter(any),
    st.sampled_from([0.02, 0.2, 0.9]),
    st.integers(2, 3),
)
def test_who_is_given_up_is_who_the_plain_rule_gives_up(lasts, share, count):
    whole = [losses[-count:] if len(losses) >= count else [] for losses in lasts]
    ends = ledger_of([losses[-count:] for losses in lasts], count).recorded.observe().scores
    found = given_up(ends, np.zeros(len(lasts), np.float32), share)
    assert {*found.tolist()} == plainly_given_up(whole, share)


def test_a_sample_of_many_examples_sets_the_same_limits_where_they_are_clear(monkeypatch):
    some = np.array(crowd(stay=40, recover=0, learned=150), np.float32).T[::-1]
    losses, classes = np.tile(some, 200), np.zeros(200 * some.shape[1], np.float32)
    share = 40 / some.shape[1]
    exactly = given_up(losses, classes, 0.05), rule.highest(losses[0], classes, share / 2)
    monkeypatch.setattr(rule, "SAMPLED", 2000)
    assert len(exactly[0]) == 200 * 40
    assert np.array_equal(given_up(losses, classes, 0.05), exactly[0])
    assert np.array_equal(rule.highest(losses[0], classes, 1.1 * share), exactly[0])


CLASSES = st.lists(st.sampled_from([0.0, 1.0, 7.0]), min_size=60, max_size=60)


@given(CLASSES, st.lists(st.sampled_from([LEARNED, FAR]), min_size=60, max_size=60))
def test_nothing_is_given_up_in_a_class_of_which_less_than_half_is_learned(classes, newest):
    lasts = [[FAR, loss] for loss in newest] + crowd(stay=40, recover=0, learned=200)
    ledger = ledger_of(lasts)
    known = torch.tensor([*classes, *[9.0] * 245])  # class 9, of which most is learned
    found = given_up(ledger.recorded.observe().scores, known.float().numpy(), 0.9)
    for number in {*classes}:
        own = [i for i, each in enumerate(classes) if each == number]
        learned = sum(newest[i] == LEARNED for i in own)
        lost = [i in found for i in own]
        assert sum(lost) == (len(own) - learned if 2 * learned >= len(own) else 0)
    assert {*range(60, 100)} <= {*found.tolist()}


@pytest.mark.parametrize("told", [0, 100])
def test_examples_without_a_class_are_one_class_and_classes_may_be_far_apart(told):
    """Those that are told are of two classes, of which one is learned; so are the others."""
    lasts = [*([[FAR, FAR]] * 40), *([[FAR, LEARNED]] * 60), *crowd(stay=40, recover=0, learned=60)]
    unseen = [[]] * 200  # count for none
    ledger = ledger_of(lasts + unseen)
    ledger.classify(torch.arange(told), torch.tensor([0] * 60 + [2**62] * 40)[:told])
    classes = ledger.classes.observe().scores[0]
    found = given_up(ledger.recorded.observe().scores, classes, 0.5)
    lost = [int(part) for part in np.histogram(found, [0, 60, 100, 500])[0]]
    assert lost == ([0, 0, 40] if told else [40, 0, 40])


@given(
    st.lists(st.floats(0, 4, width=32), min_size=1, max_size=20),
    st.integers(0, 30),
    st.sampled_from([1.0, 8.0]),
)
def test_low_losses_rise_with_visits_to_that_of_an_even_chance(losses, visits, fades):
    ledger = ledger_of([*[[loss] for loss in losses], [], []])  # two are never drawn
    for _ in range(visits):
        ledger.count(torch.arange(len(losses)))
    *found, _, _ = recalled(ledger, 1, fades=fades)
    left = 1 - min(1, max(0, visits - 1) / fades)
    for loss, risen in zip(losses, found, strict=True):
        error = -math.expm1(-loss)
        expected = loss if error > 0.5 else -math.log(1 - 0.5 * (2 * error) ** left)
        assert risen == pytest.approx(expected, rel=1e-4, abs=1e-6)


@given(
    st.lists(st.floats(0, 4, width=32), min_size=1, max_size=20),
    st.integers(1, 60),
    st.integers(0, 60),
)
def test_low_losses_rise_in_a_class_of_more_than_half(losses, others, unknown):
    """An error as large as that of always guessing the class counts as a half."""
    frequent, few = [[loss] for loss in losses], [[0.1], [2.0]]
    lasts = [*few, *frequent, *[[0.3]] * (others - 1), *[[0.2]] * unknown]
    ledger = ledger_of(lasts)
    told = torch.tensor([3, 5, *[5] * len(losses), *range(7, 6 + others)])
    ledger.classify(torch.arange(len(told)), told)
    rare, *found = recalled(ledger, 1)
    share = (len(losses) + 1) / (len(losses) + 1 + others)
    for (loss,), risen in zip([[2.0], *frequent], found, strict=False):
        error = -math.expm1(-loss)
        least = min(0.5, error * max(1, 0.5 / (1 - share)))
        assert risen == pytest.approx(-math.log(1 - max(error, least)), rel=1e-4, abs=1e-6)
    assert [rare, *found[len(losses) + 1 :]] == pytest.approx(
        [0.1] + [0.3] * (others - 1) + [0.2] * unknown
    )


def test_a_majority_is_found_among_many_and_one_class_alone_is_never_learned(monkeypatch):
    monkeypatch.setattr(rule, "SAMPLED", 50)
    classes = torch.tensor([0, 1, 2, 2, 2, 2] * 100)
    ledger = ledger_of([[0.1]] * 600)
    ledger.classify(torch.arange(600), classes)
    found = torch.tensor(recalled(ledger, 1))
    raised = -math.log1p(0.5 / (1 / 3) * math.expm1(-0.1))
    expected = torch.where(classes == 2, raised, 0.1)
    torch.testing.assert_close(found, expected)
    ledger.classify(torch.arange(600), torch.full((600,), 4))
    assert recalled(ledger, 1) == pytest.approx([math.log(2)] * 600)


def test_of_a_stream_everything_is_trained_on_while_scoring_would_not_pay():
    # Of a loss of ln 2 nothing would be skipped, and of a loss of 0 nine in ten.
    data = [(torch.tensor([float(number)]), 0) for number in range(4000)]
    shares, model = (0.0, 0.6, 0.7, 0.9, 0.0), torch.nn.Linear(1, 1)
    losses = torch.tensor([-math.log1p((share - 1.0) / 2.0) for share in shares])
    loader = sb.SelectiveLoader(
        *(DataLoader(sb.unique_stream(data), 20), model, None, sb.auto(stream=True)),
        losses=lambda model, batch: losses[batch[0][:, 0].long() // 800],
        quiet=True,
    )
    kept = torch.cat([batch[0][:, 0] for batch in loader]).long() // 800
    counts = torch.bincount(kept, minlength=5).tolist()
    assert counts[:2] == [800, 800]  # only probes are scored
    # The gate opens after some of the third part, and shuts after some of the last.
    assert 240 < counts[2] < 700
    assert counts[3] == pytest.approx(80, abs=60)
    assert counts[4] > 700
    assert loader.stats.scored < 2000


def test_rows_without_a_target_or_with_a_loss_that_is_no_number_do_not_count():
    scores = torch.tensor([0.0, math.inf, math.log(2.0), NO_TARGET, -math.log(0.75), math.nan])
    assert float(rule.share_skipped(scores)) == pytest.approx((0.9 + 0.0 + 0.0 + 0.5) / 4)
    assert float(rule.share_skipped(torch.full((3,), NO_TARGET))) == 0.0


def test_of_a_stream_labels_cannot_look_wrong():
    with pytest.raises(sb.ConfigurationError, match="trim=True"):
        sb.auto(trim=True, stream=True)
