"""One loss per row, as of that row alone; batches in whole updates; documents of packed rows."""

import functools

import pytest
import torch

pytest.importorskip("transformers")

import fixture_text as text
import transformers
from fixture_damage import refuse_all
from fixture_loaders import Numbered, select
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader
from transformers.trainer_pt_utils import LabelSmoother

import selective_backprop as sb
from selective_backprop._core.types import NO_TARGET
from selective_backprop.integrations._transformers import _documents, _model_losses
from selective_backprop.integrations._transformers._model_losses import ModelLosses, Target
from selective_backprop.integrations._transformers._updates import Updates

SMALL = {"vocab_size": 32, "intermediate_size": 16, **text.SIZE}


def bert(kind, **options):
    return kind(transformers.BertConfig(**SMALL, max_position_embeddings=16, **options))


def t5():
    config = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1}
    config |= {"num_heads": 2, "decoder_start_token_id": 0}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**config))


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SMALL, bos_token_id=None, eos_token_id=None)
    )


def tokens(classes):
    labels = torch.randint(0, classes, (5, 9))
    labels[0, 4:] = labels[2, :6] = labels[3, 5] = -100
    return labels


def classified(classes, **options):
    kind = transformers.BertForSequenceClassification
    return functools.partial(bert, kind, num_labels=classes, **options)


TAGGER = functools.partial(bert, transformers.BertForTokenClassification, num_labels=4)
REGRESSION = classified(3, problem_type="regression")
MODELS = {
    "gpt-2": (text.speaker, lambda: tokens(32), Target.NEXT_TOKENS),
    "llama": (llama, lambda: tokens(32), Target.NEXT_TOKENS),
    "t5": (t5, lambda: tokens(32), Target.TOKENS),
    "masked": (lambda: bert(transformers.BertForMaskedLM), lambda: tokens(32), Target.TOKENS),
    "tagged": (TAGGER, lambda: tokens(4), Target.TOKENS),
    "classes": (classified(4), lambda: torch.randint(0, 4, (5,)), Target.CLASSES),
    "number": (classified(1), lambda: torch.randn(5), Target.CLASSES),
    "numbers": (REGRESSION, lambda: torch.randn(5, 3), Target.CLASSES),
    "several classes": (classified(3), lambda: torch.randint(0, 2, (5, 3)).float(), Target.CLASSES),
}


def made(name):
    """Return a model, a batch for it, and what its labels are."""
    torch.manual_seed(2)
    make, labels, target = MODELS[name]
    return make().eval(), {"input_ids": torch.randint(1, 32, (5, 9)), "labels": labels()}, target


def alone(model, batch, row, **options):
    return model(**{key: value[row : row + 1] for key, value in batch.items()}, **options)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_s_loss_is_the_model_s_of_it_alone_and_weights_multiply_rows(name):
    model, batch, target = made(name)
    assert _model_losses.find_target(model) is target
    weights, losses = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.25]), ModelLosses.of_model(model)
    counted = batch["labels"] != -100
    counted = counted[:, 1:] if target is Target.NEXT_TOKENS else counted
    counts = counted.view(5, -1).sum(1)
    with torch.no_grad():
        expected = torch.stack([alone(model, batch, row).loss for row in range(5)])
        torch.testing.assert_close(losses(model, batch), expected)
        outputs = losses.forward(model, batch, compare=True)
        for items in (None, 70):  # and elements divide them
            found = losses.weigh(outputs, batch, weights, items)
            total = (weights * expected * counts).sum()
            torch.testing.assert_close(found, total / (items or counts.sum()))


@pytest.mark.parametrize("name", ["gpt-2", "tagged", "classes"])
def test_a_row_whose_labels_are_all_masked_has_no_score_but_a_loss_of_0(name):
    model, batch, _ = made(name)
    batch["labels"][1] = -100
    losses = ModelLosses.of_model(model)
    with torch.no_grad():
        scores, recorded = losses(model, batch), losses.rows(model(**batch), batch)
    assert (scores[1], recorded[1]) == (NO_TARGET, 0.0)
    kept = torch.arange(5) != 1
    torch.testing.assert_close(scores[kept], recorded[kept])
    assert bool((scores[kept] > 0).all())


def test_a_wrapper_without_a_config_gets_labels_too_if_inputs_are_made_of_them():
    model, losses = t5().eval(), ModelLosses(Target.TOKENS)
    batch = {"input_ids": torch.ones(2, 3).long(), "labels": torch.ones(2, 2).long()}
    wrapped, plain = (losses.forward(each, batch).logits for each in (AveragedModel(model), model))
    assert torch.equal(wrapped, plain)


def test_confidence_in_several_yes_or_no_labels_is_in_all_of_them():
    model, batch, _ = made("several classes")
    losses = ModelLosses.of_model(model, confidence=True)
    with torch.no_grad():
        odds = model(input_ids=batch["input_ids"]).logits.sigmoid()
        chance = torch.where(batch["labels"] > 0, odds, 1 - odds)
        torch.testing.assert_close((-losses(model, batch)).exp(), chance.prod(1))
        least = losses(model, batch | {"labels": odds})
    torch.testing.assert_close(least, torch.zeros(5), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["gpt-2", "masked", "classes"])
def test_smoothed_labels_are_those_of_the_trainer(name):
    model, batch, target = made(name)
    smoother, shifts = LabelSmoother(epsilon=0.2), target is Target.NEXT_TOKENS
    with torch.no_grad():
        expected = [
            smoother(alone(model, batch, row), batch["labels"][row : row + 1], shift_labels=shifts)
            for row in range(5)
        ]
        found = ModelLosses.of_model(model, smoothing=0.2)(model, batch)
    torch.testing.assert_close(found, torch.stack(expected))


def test_a_loss_that_is_not_known_and_labels_that_do_not_belong_to_the_logits_are_refused():
    with pytest.raises(sb.ConfigurationError, match=r"BertForQuestionAnswering.*Pass\s+losses="):
        _model_losses.find_target(bert(transformers.BertForQuestionAnswering))
    with pytest.raises(sb.ConfigurationError, match="how Linear computes its loss"):
        _model_losses.find_target(nn.Linear(2, 2))
    losses, ids = ModelLosses(Target.NEXT_TOKENS), torch.ones(2, 5, dtype=torch.int64)
    with pytest.raises(sb.LossError, match=r"'labels'.*'input_ids'"):
        losses(text.speaker(), {"input_ids": ids})
    with pytest.raises(sb.LossError, match=r"\[2, 5, 128\].*\[2, 4\]"):
        losses(text.speaker(), {"input_ids": ids, "labels": ids[:, :4]})


def test_one_s_own_losses_must_be_one_per_row():
    model, batch, _ = made("classes")
    own = _model_losses.OwnLosses(
        lambda outputs, batch: outputs.loss, _model_losses.model_parameters(model)
    )
    with pytest.raises(sb.LossError, match="scalar"):
        own(model, batch)


class Named(Numbered):
    def __getitem__(self, index):
        return {"number": torch.tensor(index)}


def updates(batches, data=None, over=False, ended=lambda: None):
    data = DataLoader(data or Named(40), 4)
    loader = select(data, sb.random_backprop(1 / 2), with_selection=True)
    return Updates(loader, batches, torch.device("cpu"), is_over=lambda: over, ended=ended)


# In the fourth epoch of 10 examples, 8 are kept, and none of 6 waits any longer.
@pytest.mark.parametrize(("batches", "examples"), [(7, 40), (8, 10)])
def test_an_update_longer_than_an_epoch_takes_several(batches, examples):
    assert len(list(updates(batches, Named(examples)))) == batches


def test_a_damaged_state_is_refused_and_changes_nothing():
    first = updates(3)
    list(first)
    assert refuse_all(first, first.state_dict(), beside=("loader",)) > 20
    loader = first.loader.state_dict() | {"position": -1}
    with pytest.raises(sb.ConfigurationError, match=r'state\["loader"\]\["position"\].*int'):
        first.load_state_dict({"loader": loader, "held": [], "beyond": []})


def test_nothing_is_yielded_when_training_is_over():
    ended = []
    over = updates(1, over=True, ended=lambda: ended.append(1))
    assert list(over) == ended == []


def test_a_batch_that_is_no_mapping_is_refused():
    with pytest.raises(sb.BatchError, match=r"collator .*list"):
        list(updates(1, Numbered(16)))


ROWS = [
    {"input_ids": [1, 2, 3, 4, 5], "labels": [1, 2, -100, 4, 5]},
    {"input_ids": [6, 7], "labels": [6, 7]},
    {"input_ids": [8, 9, 10], "labels": [-100, 9, 10]},
]
LENGTHS = [[2, 3], [2], [1, 1, 1]]


def test_documents_are_numbered_by_rows():
    documents = _documents.Documents(ROWS, LENGTHS)
    assert len(documents) == 6
    tokens = [documents[index]["input_ids"].tolist() for index in range(6)]
    assert tokens == [[1, 2], [3, 4, 5], [6, 7], [8], [9], [10]]
    assert documents[1]["labels"].tolist() == [-100, 4, 5]
    # rows without lengths are documents, and labels are tokens by default
    documents = _documents.Documents([{"input_ids": torch.tensor([4, 5])}, ROWS[1]], None)
    assert documents[0]["labels"].tolist() == [4, 5]
    assert documents[1]["input_ids"].tolist() == [6, 7]


@pytest.mark.parametrize("start", [0, 2])
def test_documents_begin_where_positions_do(start):
    rows = [
        {"position_ids": [start + place for length in lengths for place in range(length)]}
        for lengths in LENGTHS
    ]
    assert _documents.find_lengths(rows) == LENGTHS
    assert _documents.find_lengths(rows[1:2]) is None
    assert _documents.find_lengths([{"seq_lengths": lengths} for lengths in LENGTHS]) == LENGTHS
    assert _documents.find_lengths(ROWS) is None


def test_lengths_that_do_not_cover_their_row_are_refused():
    with pytest.raises(sb.BatchError, match=r"row 1 have 3 tokens.* has 2"):
        _documents.Documents(ROWS, [[5], [1, 2], [3]])[1]
