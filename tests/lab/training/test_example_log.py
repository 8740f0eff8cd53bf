import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fixture_batches import same
from fixture_lab import carry_out, few_digits, finish, fixture_plan, same_runs
from reference import doubt, mean_doubt

from reproductions.probes import Selections, unpack
from selective_backprop_lab.training import example_log as following
from selective_backprop_lab.training.example_log import ExampleLog
from selective_backprop_lab.training.run import TrainingRun

CLASSES = 4


def sights(count=40, examples=12, seed=0):
    """Made-up batches: whether trained, indices and logits; examples come several times."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            i % 3 == 0,
            torch.randint(examples, (5,), generator=generator),
            torch.randn(5, CLASSES, generator=generator) if i % 7 else None,
        )
        for i in range(count)
    ]


def follow(labels, batches, *, settle_each=False):
    follower = ExampleLog(labels)
    for trained, indices, logits in batches:
        follower.note(indices, logits, trained=trained and logits is not None)
        if settle_each:
            follower.flush()
    follower.flush()
    return follower


def plainly(labels, batches):
    """What a follower keeps, one example of one batch after the other."""
    found = [
        {"prediction": -1, "confidence": math.nan, "selected": 0, "scored": 0, "losses": []}
        | {"doubts": []}
        for _ in labels
    ]
    for trained, indices, logits in batches:
        for row, index in enumerate(indices.tolist()):
            example = found[index]
            if trained and logits is not None:
                example["selected"] += 1
            else:
                example["scored"] += 1
            if logits is None:
                continue
            powers = [math.exp(value) for value in logits[row].tolist()]
            odds = [power / sum(powers) for power in powers]
            example["prediction"] = odds.index(max(odds))
            example["confidence"] = max(odds)
            example["losses"].append(-math.log(odds[labels[index]]))
            example["doubts"].append(doubt(logits[row].tolist(), labels[index]))
    return found


@pytest.mark.parametrize("settle_each", [False, True])
def test_what_is_kept_of_an_example_is_what_counting_one_by_one_gives(settle_each):
    labels = torch.arange(12) % CLASSES
    follower = follow(labels, sights(), settle_each=settle_each)
    expected = plainly(labels.tolist(), sights())
    for name in ("prediction", "selected", "scored"):
        assert follower.columns[name].tolist() == [example[name] for example in expected]
    assert follower.columns["looks"].tolist() == [len(example["losses"]) for example in expected]
    means = [np.mean(example["losses"]) for example in expected]
    assert follower.loss_mean == pytest.approx(means, rel=1e-5)
    doubts = [mean_doubt(example["doubts"]) for example in expected]
    assert follower.doubt == pytest.approx(doubts, abs=1e-5)
    lasts = [(example["losses"][-1], example["confidence"]) for example in expected]
    kept = zip(follower.columns["loss_last"], follower.columns["confidence"], strict=True)
    assert np.array([*kept]) == pytest.approx(np.array(lasts), rel=1e-5)


def test_an_example_that_was_never_seen_says_so():
    follower = ExampleLog(torch.zeros(3, dtype=torch.int64))
    follower.note(torch.tensor([1]), torch.zeros(1, 2), trained=True)
    follower.flush()
    assert follower.columns["prediction"].tolist() == [-1, 0, -1]
    for name in ("confidence", "loss_last", "loss_mean", "doubt"):
        found = getattr(follower, name, follower.columns.get(name))
        assert np.isnan(found).tolist() == [True, False, True]


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_look_that_is_not_finite_leaves_what_the_others_told(wrong):
    labels = torch.arange(12) % CLASSES
    follower, plain = follow(labels, sights()), follow(labels, sights())
    follower.note(torch.arange(12), torch.full((12, CLASSES), wrong), trained=True)
    follower.flush()
    for name in ("prediction", "confidence", "looks", "loss_mean", "doubt"):
        np.testing.assert_array_equal(
            getattr(follower, name, follower.columns.get(name)),
            getattr(plain, name, plain.columns.get(name)),
        )
    assert np.isnan(follower.columns["loss_last"]).all()
    assert (follower.columns["selected"] == plain.columns["selected"] + 1).all()


def test_what_waits_to_be_counted_is_bounded(monkeypatch):
    monkeypatch.setattr(following, "_HELD", 100)
    follower = ExampleLog(torch.zeros(10, dtype=torch.int64))
    for _ in range(4):
        assert not follower.is_full
        follower.note(torch.arange(5), torch.zeros(5, 5), trained=True)
    assert follower.is_full
    follower.flush()
    assert not follower.is_full
    assert follower.columns["selected"].tolist() == [4] * 5 + [0] * 5


@pytest.mark.parametrize("arm", ["stale-sb", "proxy-sb", "el2n"])
def test_counts_add_up_to_those_of_the_run(arm):
    plan = replace(fixture_plan(arm, young=0.5), probes=(Selections(),))
    run = TrainingRun(plan, few_digits(), log_examples=True)
    while not run.finished:
        run.advance()
        run.look()
    history, last = run.history(), run.points[-1]
    assert history.selected.sum() == last.trained
    assert history.scored.sum() == last.scored
    counts = unpack(run.observations[-1].seen["counts"])
    assert history.selected.tolist() == counts.tolist()
    assert history.passes == pytest.approx(3.0)


def test_following_changes_nothing_of_a_run():
    plan = fixture_plan()
    followed = finish(TrainingRun(plan, few_digits(), log_examples=True))
    plain = carry_out(plan)
    assert plain.history() is None
    assert same_runs(followed, plain)


def test_a_run_that_was_interrupted_keeps_what_became_of_its_examples_if_it_logged_them():
    plan = fixture_plan("selective-backprop")
    whole = finish(TrainingRun(plan, few_digits(), log_examples=True)).history()
    first, plain = (TrainingRun(plan, few_digits(), log_examples=logs) for logs in (True, False))
    first.advance()
    plain.advance()
    batches = iter([False, True])
    first.advance(lambda: next(batches))
    second = TrainingRun(plan, few_digits(), log_examples=True)
    second.load_state_dict(first.state_dict())
    assert same(finish(second).history(), whole)
    half = TrainingRun(plan, few_digits(), log_examples=True)
    half.load_state_dict(plain.state_dict())
    assert finish(half).history() is None
