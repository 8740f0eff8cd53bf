"""Language models: a label for each byte, one loss per window, bits per byte held out."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from fixture_lab import BATCH, carry_out, fixture_plan, name_model
from torch.nn import functional

import selective_backprop as sb
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.splits import Splits, limited, of_classes, stratified_order
from selective_backprop_lab.nets import models
from selective_backprop_lab.nets.transformers import ByteLM
from selective_backprop_lab.recipe import Optimizer
from selective_backprop_lab.strategies import STRATEGIES
from selective_backprop_lab.training import run as training
from selective_backprop_lab.training.run import TrainingRun

WINDOWS, CONTEXT = 256, 8
STEPS = {"optimizer": Optimizer.ADAMW, "learning_rate": 1e-2, "weight_decay": 0.0}
ADAMW = STEPS | {"augmentation": Augmentation()}
CLASSIFIES = [name for name, spec in STRATEGIES.items() if spec.classifies]
READS = ("traditional", "selective-backprop", "stale-sb", "rho-loss", "infobatch", "auto")


def windows(count, seed):
    """Half of the windows repeat one line, the others are noise."""
    line = torch.arange(97, 97 + CONTEXT + 1).repeat(count, 1)
    noise = torch.randint(97, 123, line.shape, generator=torch.Generator().manual_seed(seed))
    text = torch.where(torch.arange(count)[:, None] % 2 == 0, line, noise)
    return text[:, :-1].short(), text[:, 1:]


@pytest.fixture(scope="module")
def splits():
    return Splits(*windows(WINDOWS, 0), *windows(20, 1), tuple(map(str, range(256))))


@pytest.fixture(scope="module")
def text(splits):
    return LabData.of("source-bytes", splits)


@pytest.fixture
def net(monkeypatch):
    monkeypatch.setattr(models, "LANGUAGE_MODELS", {"tiny_lm"})
    monkeypatch.setattr(training, "_PROBED", 64 * CONTEXT)
    return name_model(monkeypatch, "tiny_lm", partial(ByteLM, width=36, depth=1))


def plan(arm, net, **changes):
    return fixture_plan(arm, model=net, recipe=ADAMW, stale=2, young=1 / 3, **changes)


@pytest.mark.parametrize("arm", READS)
def test_every_strategy_that_goes_by_losses_learns_the_line_and_not_the_noise(arm, text, net):
    run = carry_out(plan(arm, net), text)
    before, after = math.log(256), run.points[-1].test_loss
    assert after < before - 1.0
    model = run.model.eval()
    with torch.no_grad():
        losses = functional.cross_entropy(
            model(text.test_inputs.long()), text.test_labels, reduction="none"
        ).mean(1)
    assert losses[::2].mean() < losses[1::2].mean()
    assert after == pytest.approx(losses.mean().item(), rel=1e-5)
    assert all(point.class_errors is None for point in run.points)
    assert run.meters()["class_shares"] == []
    part = text.within(stratified_order(text.train_labels)[:64])
    wrong = model(part.train_inputs.long()).argmax(1) != part.train_labels
    assert run.meters()["train_error"] == pytest.approx(100 * wrong.float().mean().item())
    assert TrainingRun(run.config, text, log_examples=True).history() is None


@pytest.mark.parametrize("arm", CLASSIFIES)
def test_what_needs_classes_is_refused_before_any_training_by_both_names(arm, text, net):
    with pytest.raises(sb.ConfigurationError, match=rf"{arm} needs .* source-bytes is text"):
        TrainingRun(plan(arm, net), text)


def test_an_example_is_ranked_and_recorded_by_the_mean_loss_of_its_tokens(text, net):
    run = TrainingRun(plan("recorded-sb", net), text)
    with torch.no_grad():
        before = functional.cross_entropy(
            run.model(text.train_inputs.long()), text.train_labels, reduction="none"
        ).mean(1)
    next(run._batches)
    ledger = run.loader.state_dict()["parts"]["ledger"]["recorded"]["scores"][0]
    seen = ledger.isfinite()
    assert int(seen.sum()) == BATCH
    torch.testing.assert_close(ledger[seen], before[seen])


def test_a_language_model_goes_on_with_all_weights_of_the_one_before(text, net):
    before = carry_out(plan("traditional", net), text).model.state_dict()
    model = TrainingRun(replace(plan("auto", net), pretrained="digits"), text, weights=before).model
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_part_of_a_text_is_drawn_from_all_of_it_and_a_larger_one_holds_a_smaller_one(splits):
    few, more = (limited(splits, count).train_labels for count in (256 - 64, 256))
    assert torch.equal(few, more[: len(few)])
    assert not torch.equal(more, splits.train_labels)
    assert torch.equal(more.sort(0).values, splits.train_labels.sort(0).values)


@pytest.mark.parametrize("changes", [{"skew": 1.0}, {"copies": 1.0}, {"places": 9}, {"noise": 0.1}])
def test_a_text_is_not_composed_nor_cut_by_class(changes, text, splits):
    assert Composition()(text) is text
    with pytest.raises(sb.ConfigurationError, match="source-bytes is text"):
        Composition(**changes)(text)
    with pytest.raises(sb.ConfigurationError, match="no classes"):
        of_classes(splits, "0-4")
