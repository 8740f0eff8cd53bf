import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
import rich.style  # noqa: F401 - draws from Python's stream when it is imported
import torch
from fixture_lab import (
    EXAMPLES,
    TESTED,
    carry_out,
    count_rows,
    few_digits,
    finish,
    fixture_plan,
    gone_on,
    name_watched,
    run_plans,
    same_runs,
    states_of,
    untimed,
)
from fixture_loaders import same_tensors
from fixture_pipelined import Coarse
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.loader import InMemoryDataset
from selective_backprop_lab.data.splits import stratified_order
from selective_backprop_lab.records.schema import read_run
from selective_backprop_lab.strategies import STRATEGIES
from selective_backprop_lab.training.evaluation import area_under_curve, evaluate
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import Probe


@pytest.mark.parametrize("arm", ["random-backprop", "selective-backprop"])
def test_a_run_leaves_every_global_random_stream_where_it_was(arm):
    streams = (torch.get_rng_state, random.getstate, lambda: np.random.get_state()[1].tolist())
    before = [stream() for stream in streams]
    with unhooked():  # the checks of annotations draw from Python's stream themselves
        carry_out(fixture_plan(arm))
    after = [stream() for stream in streams]
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


# 256 examples in batches of 64 make 4 updates an epoch; at a rate of 1/2, windows of 128 make 2.
# Arms that choose by score train on all of the first epoch, and check the losses of its first.
@pytest.mark.parametrize(
    ("arm", "updates", "trained", "scored", "loaded"),
    [
        ("traditional", 12, 768, 0, 768),
        ("random-backprop", 6, 384, 0, 384),
        ("random-scored", 6, 384, 768, 768),
        ("selective-backprop", 8, 512, 64 + 512, 768),
    ],
)
def test_the_meters_agree_with_a_count_by_hand(monkeypatch, arm, updates, trained, scored, loaded):
    rows = {"trained": 0, "looked at": 0}
    read = {"training": 0, "test": 0}
    getitems = InMemoryDataset.__getitems__

    def counted(dataset, indices):
        if len(indices) > 1:  # one alone shows which axis holds the examples
            read["test" if dataset.augmentation is None else "training"] += len(indices)
        return getitems(dataset, indices)

    monkeypatch.setattr(InMemoryDataset, "__getitems__", counted)
    run = carry_out(fixture_plan(arm, model=name_watched(monkeypatch, count_rows(rows))))
    last = run.points[-1]
    assert (last.updates, last.trained) == (updates, trained)
    assert (last.scored, last.loaded, last.candidates) == (scored, loaded, 3 * EXAMPLES)
    assert last.cost == pytest.approx((scored + 3 * trained) / (3 * EXAMPLES))
    assert last.epoch == 3.0
    # and what the net and the data set saw, whatever the meters say
    assert rows == {"trained": trained, "looked at": scored + 3 * TESTED}
    assert read == {"training": loaded, "test": 3 * TESTED}


def test_examples_scored_a_second_time_to_check_a_cheap_scorer_are_on_the_bill(monkeypatch):
    check = sb.experimental.Check(3, least=0)
    cheap = sb.Strategy("cheap", Coarse(8, check), sb.selectors.Percentile(1.0))
    monkeypatch.setitem(
        STRATEGIES, "cheap", replace(STRATEGIES["traditional"], make=lambda *_: cheap)
    )
    run = carry_out(fixture_plan("cheap"))
    last, stats = run.points[-1], run.loader.stats
    assert (stats.scored, stats.checked) == (3 * EXAMPLES, 3 * 64)
    assert last.scored == stats.scored + stats.checked
    assert last.cost == pytest.approx((last.scored + 3 * last.trained) / (3 * EXAMPLES))
    assert run.meters()["checked"] == stats.checked


def test_an_evaluation_looks_at_every_example_once_and_in_evaluation_mode():
    modes = []

    class Fixed(nn.Module):
        def forward(self, images):
            modes.append((self.training, torch.is_grad_enabled()))
            return images

    logits = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    labels = torch.tensor([0, 1, 1, 1, 0])
    batches = [(logits[:3], labels[:3]), (logits[3:], labels[3:])]
    found = evaluate(Fixed().train(), batches, torch.device("cpu"))
    assert found["test_error"] == 20.0
    assert found["class_errors"] == pytest.approx((0.0, 100 / 3))
    # of six pairs, four are in order and two tie
    assert found["ranking"] == pytest.approx(5 / 6)
    # Too few test examples of each class for an average precision; a shift is added to logits.
    assert (found["rare_precision"], found["corrected_loss"]) == (None, None)
    again = evaluate(Fixed(), batches, torch.device("cpu"), torch.tensor([2.0, 2.0]))
    assert again["corrected_loss"] == pytest.approx(found["test_loss"])
    modes.pop(), modes.pop()
    right, wrong = math.log1p(math.exp(-4.0)), 4.0 + math.log1p(math.exp(-4.0))
    assert found["test_loss"] == pytest.approx((4 * right + wrong) / 5)
    assert modes == [(False, False)] * 2


def test_an_evaluation_says_the_precision_of_the_rarest_class_that_enough_examples_have():
    chances = torch.linspace(0.1, 0.9, 100)
    labels = (torch.arange(100) >= 90).long()  # the ten with the highest odds of class 1 ...
    labels[95:98] = 2  # ... of which three are too few for a mean
    labels[80:83] = 1
    logits = torch.stack([(1 - chances).log(), chances.log(), torch.full((100,), -9.0)], 1)
    found = evaluate(nn.Identity(), [(logits, labels)], torch.device("cpu"))
    ranked = (labels.flip(0) == 1).double()
    precision = ranked.cumsum(0) / torch.arange(1, 101)
    assert found["rare_precision"] == pytest.approx(float((precision * ranked).sum() / 10))


def test_weights_of_classes_are_those_of_torchs_own_loss():
    plan = fixture_plan("traditional+class-weights", epochs=1)
    data = few_digits()
    run = TrainingRun(plan, data)
    (inputs, targets, _), selection = next(iter(run.loader))
    run.model.eval()  # without dropout
    weights = 1 / data.train_labels.bincount(minlength=10)
    wanted = nn.functional.cross_entropy(run.model(inputs), targets, weight=weights)
    assert torch.allclose(run._loss(inputs, targets, selection), wanted)


def test_the_largest_class_is_thinned_anew_in_each_epoch_and_no_other_is():
    data = few_digits()
    largest = data.train_labels.bincount().argmax()
    run = TrainingRun(fixture_plan("traditional+thinned-0.3", epochs=3), data)
    epochs = []
    for epoch in range(3):
        run.loader.set_epoch(epoch)
        epochs.append(torch.cat([batch[2] for batch, _ in run.loader]))
    seen = [{*rows[data.train_labels[rows] == largest].tolist()} for rows in epochs]
    assert len({frozenset(each) for each in seen}) == 3
    kept = round(0.3 * int((data.train_labels == largest).sum()))
    assert [len(each) for each in seen] == [kept] * 3
    last = torch.cat([data.train_labels[rows[-len(rows) // 3 :]] for rows in epochs])
    assert int((last == largest).sum()) > kept / 3  # also late in an epoch
    assert {len(rows) for rows in epochs} == {int((data.train_labels != largest).sum()) + kept}


def test_losses_are_corrected_for_classes_that_were_trained_on_less():
    data = few_digits()
    run = TrainingRun(fixture_plan("traditional+thinned-0.3", epochs=1), data)
    finish(run)
    shift = run._shift()
    largest = int(data.train_labels.bincount().argmax())
    assert int(shift.argmax()) == largest
    assert float(shift.max() - shift.median()) == pytest.approx(math.log(1 / 0.3), abs=0.5)


def test_a_point_says_the_errors_by_class_and_the_end_how_frequent_classes_are():
    data = Composition(skew=1.0, noise=0.2)(few_digits())
    run = TrainingRun(fixture_plan("traditional", epochs=1), data)
    finish(run)
    counts, point = data.test_labels.bincount(minlength=10).double(), run.points[-1]
    errors = torch.tensor(point.class_errors)
    assert float((errors * counts).sum() / counts.sum()) == pytest.approx(point.test_error)
    shares = torch.tensor(run.meters()["class_shares"]) * len(data.train_labels)
    assert torch.equal(shares.round().long(), data.train_clean_labels.bincount(minlength=10))


def test_the_end_says_the_error_on_training_examples_by_the_labels_trained_on(monkeypatch):
    data = Composition(noise=0.2)(few_digits())
    run = carry_out(fixture_plan("traditional", epochs=2), data)
    images = (data.train_inputs / 255 - data.mean[0]) / data.std[0]
    with torch.no_grad():
        wrong = run.model.eval()(images).argmax(1) != data.train_labels
    assert run.meters()["train_error"] == pytest.approx(100 * float(wrong.double().mean()))
    monkeypatch.setattr("selective_backprop_lab.training.run._PROBED", 64)
    wrong = wrong[stratified_order(data.train_labels)[:64]]
    assert run.meters()["train_error"] == pytest.approx(100 * float(wrong.double().mean()))


@given(scores=st.lists(st.integers(0, 5), min_size=4, max_size=30), data=st.data())
def test_the_area_under_the_curve_counts_the_pairs_that_are_in_order(scores, data):
    labels = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    pairs = [
        (high > low) + (high == low) / 2
        for high, above in zip(scores, labels, strict=True)
        for low, below in zip(scores, labels, strict=True)
        if above and not below
    ]
    found = area_under_curve(torch.tensor(scores), torch.tensor(labels).long())
    assert found == pytest.approx(sum(pairs) / len(pairs)) if pairs else math.isnan(found)


@pytest.mark.parametrize("length", [{"epochs": 0}, {"cost": math.inf}, {"seconds": math.nan}])
def test_a_length_that_is_not_positive_and_finite_is_refused(length):
    with pytest.raises(sb.ConfigurationError, match="must be positive and finite"):
        fixture_plan(**length)


def test_how_often_a_run_is_evaluated_changes_nothing_in_it():
    seldom, often = (carry_out(fixture_plan(evaluations=count)) for count in (1, 7))
    assert same_tensors(seldom.model.state_dict(), often.model.state_dict())
    assert untimed(seldom.points)[-1]["test_loss"] == untimed(often.points)[-1]["test_loss"]


@pytest.mark.parametrize(("arm", "read"), [("auto", 0.2), ("traditional", None)])
def test_the_share_of_labels_that_look_wrong_is_metered_where_it_is_read(arm, read):
    recipe = {"learning_rate": 0.05, "batch_size": 16}
    plan = fixture_plan(arm, model="small_cnn", epochs=2, seed=1, recipe=recipe, evaluations=1)
    run = TrainingRun(plan, Composition(noise=0.2)(few_digits(1000)))
    run.advance()
    assert run.meters()["wrong_labels"] == (read and pytest.approx(read, abs=0.1))


# Arms that differ in what they must remember; those that prepare something are below.
DIFFERENT = ["traditional", "random-backprop", "selective-backprop", "predicted-sb-gp", "proxy-sb"]
DIFFERENT += ["kath18-loss-gated", "kakurenbo", "easy-skip"]


@pytest.mark.parametrize("arm", DIFFERENT)
def test_arms_of_every_kind_and_probes_go_on_from_their_state_bit_for_bit(arm):
    plan, data = replace(fixture_plan(arm), probes=(Restless(),)), few_digits()
    whole, states = states_of(plan, data, every=3)
    assert same_runs(gone_on(plan, data, states[len(states) // 2]), whole)


def test_examples_that_wait_for_a_later_epoch_still_do_after_a_resumption():
    plan, data = fixture_plan("stale-sb-released", stale=3, epochs=6, evaluations=6), few_digits()
    whole, states = states_of(plan, data, every=5)
    assert all(same_runs(gone_on(plan, data, state), whole) for state in states)


@pytest.mark.parametrize("arm", ["diet-sb", "rho-loss"])
def test_what_was_prepared_is_not_prepared_again(monkeypatch, arm):
    plan, data = fixture_plan(arm, keep=1 / 2, young=1 / 3), few_digits()
    whole, states = states_of(plan, data, every=5)

    def refuse(task, settings):
        raise AssertionError("prepared again")

    monkeypatch.setitem(STRATEGIES, arm, replace(STRATEGIES[arm], prepare=refuse))
    resumed = gone_on(plan, data, states[-1])
    assert same_runs(resumed, whole)
    assert resumed.meter.prepared == whole.meter.prepared > 0.0
    assert resumed.meter.price == whole.meter.price


@dataclass(frozen=True)
class Restless(Probe):
    """Draws random numbers, counts what is selected, and speaks every other time."""

    name: str = "restless"

    def select(self, scene, indices, memory):
        memory["selected"] = memory.get("selected", 0) + len(indices)

    def look(self, scene, progress, memory):
        torch.rand(100)
        assert not scene.model.training
        memory["looks"] = memory.get("looks", 0) + 1
        return {"selected": memory["selected"]} if memory["looks"] % 2 else None


def record(folder, *probes, arm="selective-backprop"):
    plan = replace(fixture_plan(arm), probes=probes)
    [run] = run_plans([plan], few_digits(), folder)
    return run


def test_what_a_probe_sees_is_recorded_at_the_moment_it_saw_it(tmp_path):
    run = record(tmp_path, Restless())
    assert [each.probe for each in run.observations] == ["Restless(name='restless')"] * 2
    assert [each.progress for each in run.observations] == [run.points[i].progress for i in (0, 2)]
    assert [each.seen for each in run.observations] == [
        {"selected": run.points[i].trained} for i in (0, 2)
    ]


def test_a_record_that_lacks_what_a_probe_would_have_seen_is_repeated_and_kept(tmp_path):
    first = record(tmp_path)
    again = record(tmp_path, Restless())
    assert again.path == first.path
    assert again.observations
    assert untimed(list(again.points)) == untimed(list(first.points))
    (old,) = tmp_path.glob("*.replaced")
    assert read_run(old).points == first.points
    assert record(tmp_path, Restless()) == again
    assert record(tmp_path) == again
    both = record(tmp_path, Restless(), Restless("other"))
    names = {f"Restless(name='{name}')" for name in ("restless", "other")}
    assert {each.probe for each in both.observations} == names
