"""One loss per row of a batch: what the model itself says of that row alone."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

import fixture_text as text
import transformers
from torch import nn
from transformers.trainer_pt_utils import LabelSmoother

import selective_backprop as sb
from selective_backprop._core.types import NO_TARGET
from selective_backprop.integrations._transformers._model_losses import (
    ModelLosses,
    OwnLosses,
    Target,
    find_target,
    model_parameters,
)

SMALL = {"vocab_size": 32, "intermediate_size": 16, **text.SIZE}


def bert(kind, **options):
    return kind(transformers.BertConfig(**SMALL, max_position_embeddings=16, **options))


def t5():
    config = transformers.T5Config(
        vocab_size=32,
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SMALL, bos_token_id=None, eos_token_id=None)
    )


def tokens(classes):
    labels = torch.randint(0, classes, (5, 9))
    labels[0, 4:] = labels[2, :6] = labels[3, 5] = -100
    return labels


MODELS = {
    "gpt-2": (text.speaker, lambda: tokens(32), Target.NEXT_TOKENS),
    "llama": (llama, lambda: tokens(32), Target.NEXT_TOKENS),
    "t5": (t5, lambda: tokens(32), Target.TOKENS),
    "masked": (
        lambda: bert(transformers.BertForMaskedLM),
        lambda: tokens(32),
        Target.TOKENS,
    ),
    "tagged": (
        lambda: bert(transformers.BertForTokenClassification, num_labels=4),
        lambda: tokens(4),
        Target.TOKENS,
    ),
    "classes": (
        lambda: bert(transformers.BertForSequenceClassification, num_labels=4),
        lambda: torch.randint(0, 4, (5,)),
        Target.CLASSES,
    ),
    "number": (
        lambda: bert(transformers.BertForSequenceClassification, num_labels=1),
        lambda: torch.randn(5),
        Target.CLASSES,
    ),
    "numbers": (
        lambda: bert(
            transformers.BertForSequenceClassification, num_labels=3, problem_type="regression"
        ),
        lambda: torch.randn(5, 3),
        Target.CLASSES,
    ),
    "several classes": (
        lambda: bert(transformers.BertForSequenceClassification, num_labels=3),
        lambda: torch.randint(0, 2, (5, 3)).float(),
        Target.CLASSES,
    ),
}


@pytest.fixture(params=MODELS)
def case(request):
    torch.manual_seed(1)
    make, labels, target = MODELS[request.param]
    batch = {"input_ids": torch.randint(1, 32, (5, 9)), "labels": labels()}
    return make().eval(), batch, target


def alone(model, batch, row, **options):
    return model(**{key: value[row : row + 1] for key, value in batch.items()}, **options)


def test_a_row_s_loss_is_what_the_model_says_of_it_alone(case):
    model, batch, target = case
    assert find_target(model) is target
    with torch.no_grad():
        expected = [alone(model, batch, row).loss for row in range(5)]
        found = ModelLosses(target)(model, batch)
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize("name", ["gpt-2", "tagged", "classes"])
def test_a_row_whose_labels_are_all_masked_has_no_score_but_a_loss_of_0(name):
    make, labels, target = MODELS[name]
    batch = {"input_ids": torch.randint(1, 32, (5, 9)), "labels": labels()}
    batch["labels"][1] = -100
    model, losses = make().eval(), ModelLosses(target)
    with torch.no_grad():
        scores, recorded = losses(model, batch), losses.rows(model(**batch), batch, model)
    assert scores[1] == NO_TARGET
    assert recorded[1] == 0.0
    kept = torch.arange(5) != 1
    torch.testing.assert_close(scores[kept], recorded[kept])
    assert bool((scores[kept] > 0).all())


def test_a_wrapper_without_a_config_gets_labels_too_if_inputs_are_made_of_them():
    class Wrapper(nn.Module):  # as DDP
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, **inputs):
            return self.module(**inputs)

    model, batch = t5().eval(), {"input_ids": torch.ones(2, 3).long(), "labels": torch.ones(2, 2)}
    batch["labels"] = batch["labels"].long()
    losses = ModelLosses(Target.TOKENS)
    wrapped, plain = (losses.forward(each, batch).logits for each in (Wrapper(model), model))
    assert torch.equal(wrapped, plain)


def test_confidence_in_several_yes_or_no_labels_is_in_all_of_them():
    make, labels, target = MODELS["several classes"]
    torch.manual_seed(3)
    model, batch = make().eval(), {"input_ids": torch.randint(1, 32, (5, 9)), "labels": labels()}
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"]).logits
        found = ModelLosses(target, confidence=True)(model, batch)
        chance = torch.where(batch["labels"] > 0, logits.sigmoid(), 1 - logits.sigmoid())
        torch.testing.assert_close((-found).exp(), chance.prod(1))
        batch["labels"] = logits.sigmoid()
        least = ModelLosses(target, confidence=True)(model, batch)
    torch.testing.assert_close(least, torch.zeros(5), atol=1e-5, rtol=0)


def test_weights_multiply_rows_and_elements_divide_them(case):
    model, batch, target = case
    weights = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.25])
    counted = batch["labels"] != -100
    if target is Target.NEXT_TOKENS:
        counted = counted[:, 1:]
    counts = counted.view(5, -1).sum(1)
    losses = ModelLosses(target)
    with torch.no_grad():
        total = sum(
            weight * alone(model, batch, row).loss * counts[row]
            for row, weight in enumerate(weights)
        )
        outputs = losses.forward(model, batch, compare=True)
        for items in (None, 70):
            found = losses.weigh(outputs, batch, model, weights, items)
            torch.testing.assert_close(found, total / (items or counts.sum()))


@pytest.mark.parametrize("name", ["gpt-2", "masked", "classes"])
def test_smoothed_labels_are_those_of_the_trainer(name):
    torch.manual_seed(2)
    make, labels, target = MODELS[name]
    model, batch = make().eval(), {"input_ids": torch.randint(1, 32, (5, 9)), "labels": labels()}
    smoother, shifts = LabelSmoother(epsilon=0.2), target is Target.NEXT_TOKENS
    with torch.no_grad():
        expected = [
            smoother(alone(model, batch, row), batch["labels"][row : row + 1], shift_labels=shifts)
            for row in range(5)
        ]
        found = ModelLosses(target, smoothing=0.2)(model, batch)
    torch.testing.assert_close(found, torch.stack(expected))


def test_a_loss_that_is_not_known_is_asked_for():
    with pytest.raises(sb.ConfigurationError, match=r"BertForQuestionAnswering.*Pass\s+losses="):
        find_target(bert(transformers.BertForQuestionAnswering))
    with pytest.raises(sb.ConfigurationError, match="how Linear computes its loss"):
        find_target(nn.Linear(2, 2))


def test_labels_that_do_not_belong_to_the_logits_are_refused():
    model = text.speaker().eval()
    batch = {"input_ids": torch.ones(2, 5, dtype=torch.int64)}
    with pytest.raises(sb.LossError, match=r"'labels'.*'input_ids'"):
        ModelLosses(Target.NEXT_TOKENS)(model, batch)
    with pytest.raises(sb.LossError, match=r"\[2, 5, 128\].*\[2, 4\]"):
        ModelLosses(Target.NEXT_TOKENS)(
            model, batch | {"labels": torch.ones(2, 4, dtype=torch.int64)}
        )


def test_one_s_own_losses_see_outputs_and_batch_and_must_be_one_per_row():
    model = bert(transformers.BertForSequenceClassification, num_labels=4).eval()
    batch = {"input_ids": torch.ones(3, 5, dtype=torch.int64), "labels": torch.arange(3)}
    own = OwnLosses(
        lambda outputs, batch: outputs.logits.sum(1) * batch["labels"], model_parameters(model)
    )
    with torch.no_grad():
        rows = own(model, batch)
        outputs = own.forward(model, batch)
        weighed = own.weigh(outputs, batch, model, torch.tensor([1.0, 2.0, 3.0]), None)
    torch.testing.assert_close(rows, outputs.logits.sum(1) * torch.arange(3))
    torch.testing.assert_close(weighed, (rows * torch.tensor([1.0, 2.0, 3.0])).mean())
    with pytest.raises(sb.LossError, match="scalar"):
        replace(own, function=lambda outputs, batch: outputs.loss)(model, batch)
