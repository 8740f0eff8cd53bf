"""TokenLossTrainer trains as the Trainer does at a rate of 1, and on the hardest tokens below."""

import pytest
import torch

pytest.importorskip("transformers")

import fixture_text as text
import transformers
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.integrations.transformers import SelectiveTrainer, TokenLossTrainer

STEADY = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}


def prepare(kind, folder, *, model=None, ours=None, options=None, **arguments):
    chosen = {"max_steps": 6, "logging_strategy": "steps", "logging_steps": 1, "optim": "sgd"}
    chosen |= {"learning_rate": 0.5, "gradient_accumulation_steps": 2}
    made = kind(
        model=text.speaker(**STEADY) if model is None else model,
        args=text.arguments(folder, **chosen | arguments),
        data_collator=text.collate,
        train_dataset=text.spoken(48),
        **options or {},
        **ours or {},
    )
    made.remove_callback(transformers.PrinterCallback)
    return made


def losses_of(made):
    return [entry["loss"] for entry in made.state.log_history if "loss" in entry]


class Selected(TokenLossTrainer, SelectiveTrainer):
    pass


def test_at_a_rate_of_one_curves_and_weights_are_the_trainer_s_to_rounding(tmp_path):
    plain = prepare(transformers.Trainer, tmp_path)
    chunked = prepare(TokenLossTrainer, tmp_path, ours={"chunk": 16})
    before = text.weights(plain)
    for made in (plain, chunked):
        made.train()
    assert losses_of(chunked) == pytest.approx(losses_of(plain), abs=2e-4)
    assert len(losses_of(plain)) == 6
    torch.testing.assert_close(text.weights(chunked), text.weights(plain), rtol=0, atol=2e-6)
    assert (text.weights(plain) - before).abs().max() > 1e-3
    chunked.eval_dataset = plain.eval_dataset = text.spoken(8)
    found, wanted = (made.evaluate()["eval_loss"] for made in (chunked, plain))
    assert found == pytest.approx(wanted, abs=1e-5)


def test_below_it_the_tokens_of_highest_loss_are_trained_on_and_batches_weigh_as_before(tmp_path):
    made = prepare(TokenLossTrainer, tmp_path, ours={"rate": 0.3})
    batch, items = text.collate(text.spoken(4)), torch.tensor(500)
    made.model.train()
    loss = made.compute_loss(made.model, batch, num_items_in_batch=items)
    labels = batch["labels"][:, 1:]
    logits = made.model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    losses = functional.cross_entropy(logits.movedim(-1, 1), labels, reduction="none")
    counted = losses[labels != -100]
    highest = counted.sort(descending=True).values[: round(0.3 * len(counted))]
    torch.testing.assert_close(loss, highest.mean() * len(counted) / 500)
    loss, outputs = made.compute_loss(made.model, batch, return_outputs=True)
    torch.testing.assert_close(loss, highest.mean())
    assert outputs.logits.shape[1] == 1  # the head itself is asked for the last token alone


def test_the_head_computes_in_the_trainer_s_precision(tmp_path):
    made = prepare(TokenLossTrainer, tmp_path, bf16=True)
    batch, model = text.collate(text.spoken(4)), made.model.train()
    loss = made.compute_loss(model, batch)
    by_hand = sb.TokenLoss(model.lm_head, sb.TokenSelection(1.0), shift=True)
    hidden = model.transformer(batch["input_ids"], attention_mask=batch["attention_mask"])[0]
    with torch.autocast("cpu", torch.bfloat16):
        expected = by_hand(hidden, batch["labels"]).loss
    assert torch.equal(loss, expected)
    assert not torch.equal(loss, by_hand(hidden, batch["labels"]).loss)


def test_a_model_that_is_made_anew_for_a_training_is_the_one_trained(tmp_path):
    made = TokenLossTrainer(
        args=text.arguments(tmp_path, max_steps=2),
        data_collator=text.collate,
        train_dataset=text.spoken(8),
        model_init=lambda trial: text.speaker(),
    )
    assert made.train().global_step == 2
    assert made._token_loss.head is made.model.lm_head


@pytest.mark.parametrize(
    ("kind", "ours", "options", "words"),
    [
        (TokenLossTrainer, {"rate": 0.0}, {}, "rate=0"),
        (TokenLossTrainer, {}, {"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
        (Selected, {"strategy": sb.traditional()}, {}, "whole examples"),
    ],
)
def test_other_losses_and_rates_are_refused(tmp_path, kind, ours, options, words):
    with pytest.raises(sb.ConfigurationError, match=words):
        prepare(kind, tmp_path, ours=ours, **options)
    with pytest.raises(sb.ConfigurationError, match="BertForSequenceClassification"):
        prepare(TokenLossTrainer, tmp_path, model=text.classifier())


def test_a_model_that_changes_its_logits_after_its_head_is_refused_at_the_first_batch(tmp_path):
    class Scaled(transformers.GPT2LMHeadModel):
        def forward(self, *args, **options):
            found = super().forward(*args, **options)
            found.logits = found.logits * 2
            return found

    made = prepare(TokenLossTrainer, tmp_path)
    made.model.__class__ = Scaled
    made.model.train()
    with pytest.raises(sb.ConfigurationError, match="caps or scales"):
        made.compute_loss(made.model, text.collate(text.spoken(4)))


def test_a_model_that_passes_by_its_base_model_is_refused_at_the_first_batch(tmp_path):
    sizes = {"hidden_size": 16, "ffn_dim": 16, "word_embed_proj_dim": 16, "vocab_size": 128}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64}
    model = transformers.OPTForCausalLM(transformers.OPTConfig(**sizes, **layers))
    made = prepare(TokenLossTrainer, tmp_path, model=model)
    made.model.train()
    with pytest.raises(sb.ConfigurationError, match=r"OPTModel.*your own compute_loss"):
        made.compute_loss(made.model, text.collate(text.spoken(4)))


def test_several_gpus_in_one_process_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(transformers.TrainingArguments, "n_gpu", 2)
    with pytest.raises(sb.ConfigurationError, match=r"DataParallel.*torchrun"):
        prepare(TokenLossTrainer, tmp_path)


def test_trl_s_trainer_is_combined_with_it(tmp_path):
    pytest.importorskip("trl")
    import fixture_sft as sft
    from trl import SFTTrainer

    class Mine(TokenLossTrainer, SFTTrainer):
        pass

    options = {"max_steps": 4, "logging_strategy": "steps", "logging_steps": 1, "packing": True}
    plain = sft.trainer(tmp_path, **options)
    mine = sft.trainer(tmp_path, kind=Mine, options={"rate": 1.0}, **options)
    for made in (plain, mine):
        made.train()
    assert losses_of(mine) == pytest.approx(losses_of(plain), abs=2e-4)
    torch.testing.assert_close(text.weights(mine), text.weights(plain), rtol=0, atol=1e-4)
