"""TRL's SFTTrainer trains on selected examples, padded or packed, as it would on them alone."""

import pytest
import torch

pytest.importorskip("trl")

import fixture_sft as sft
import fixture_text as text
import transformers
from datasets import Dataset
from torch.nn import functional

import selective_backprop as sb

PACKED = {"packing": True}
KINDS = {
    "padded": (sft.texts, {}),
    "completion": (sft.answers, {}),
    "assistant": (sft.talks, {"assistant_only_loss": True}),
    "padding-free": (sft.texts, {"padding_free": True, "max_length": None}),
    "packed": (sft.texts, PACKED),
    "packed completion": (sft.answers, PACKED),
    "split": (sft.texts, {"packing": True, "packing_strategy": "bfd_split", "max_length": 30}),
    "wrapped": (sft.texts, {"packing": True, "packing_strategy": "wrapped"}),
}
EACH = sb.random_backprop(1)  # draws documents, and leaves none out
ONE_STEP = {
    "max_steps": 1,
    "optim": "sgd",
    "learning_rate": 1.0,
    "max_grad_norm": 0.0,  # which would hide a loss of another scale
    "lr_scheduler_type": "constant",
}


class Watched(sft.Selective):
    """Note what each training step is given."""

    def training_step(self, model, inputs, *args, **options):
        self.given = [*getattr(self, "given", []), dict(inputs)]
        return super().training_step(model, inputs, *args, **options)


def loss_of(model, example):
    """The mean of one example's tokens that count, by logits of it alone."""
    logits = model(input_ids=torch.as_tensor(example["input_ids"])[None]).logits[0, :-1]
    labels = torch.as_tensor(example["labels"])[1:]
    return functional.cross_entropy(logits, labels, reduction="none"), labels != -100


def assert_remembered(column, made, least):
    """What is remembered of an example is its mean loss, at least of so many."""
    scores = column.observe().scores[0]
    known = [index for index, score in enumerate(scores) if score == score]
    assert len(known) >= least
    with torch.no_grad():
        for index in known:
            losses, counted = loss_of(made.model, made.selective_loader.dataset[index])
            expected = losses.sum() / counted.sum().clamp(min=1)
            assert scores[index] == pytest.approx(expected.item(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_traditional_training_is_the_plain_trainer_s_bit_for_bit(tmp_path, kind):
    data, options = KINDS[kind]
    logs = {"logging_strategy": "steps", "logging_steps": 1}
    ended, losses = [], []
    for strategy in (None, sb.traditional()):
        made = sft.trainer(tmp_path, strategy, data(50), max_steps=12, **logs, **options)
        made.train()
        ended.append(text.weights(made))
        losses.append([each["loss"] for each in made.state.log_history if "loss" in each])
    assert losses[0] == losses[1]
    assert len(losses[0]) == 12
    assert torch.equal(*ended)


def test_a_batch_of_all_packed_rows_is_the_plain_trainer_s(tmp_path):
    options = {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 21}
    ended = []
    for strategy in (None, EACH):
        made = sft.trainer(tmp_path, strategy, **PACKED, **options, **ONE_STEP)
        made.train()
        ended.append(made)
    torch.testing.assert_close(*map(text.weights, ended), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "attention"),
    [(kind, "sdpa") for kind in KINDS if kind != "wrapped"] + [("packed", "eager")],
)
def test_an_example_s_score_is_its_own_mean_loss_wherever_it_lies(tmp_path, kind, attention):
    data, options = KINDS[kind]
    model = sft.speaker(attention)
    strategy = sb.stale_sb(rate=1 / 2, schedule=sb.Schedule())  # remembers its scores
    made = sft.trainer(
        tmp_path, strategy, data(20), model=model, max_steps=2, learning_rate=0.0, **options
    )
    made.train()
    assert_remembered(made.selective_loader.ledger.scored, made, least=16)


@pytest.mark.parametrize("kind", ["completion", "assistant", "packed", "packed completion"])
def test_an_update_is_the_mean_over_all_tokens_of_what_was_selected(tmp_path, kind):
    data, options = KINDS[kind]
    made = sft.trainer(
        tmp_path,
        text.selective(1 / 2),
        data(40),
        kind=Watched,
        gradient_accumulation_steps=2,
        **ONE_STEP,
        **options,
    )
    made.train()
    twin, loader = sft.speaker(), made.selective_loader
    chosen = [index for batch in made.given for index in batch["selection_indices"].tolist()]
    assert len(made.given) == 2
    assert len(set(chosen)) == len(chosen) < 40
    losses, counted = zip(*(loss_of(twin, loader.dataset[index]) for index in chosen), strict=True)
    (sum(map(torch.sum, losses)) / sum(map(torch.sum, counted))).backward()
    moved = torch.cat([(each - each.grad).detach().flatten() for each in twin.parameters()])
    torch.testing.assert_close(text.weights(made), moved, rtol=0, atol=2e-6)


def test_only_selected_documents_go_through_the_training_pass(tmp_path):
    made = sft.trainer(tmp_path, sb.random_backprop(1 / 2), kind=Watched, **PACKED)
    tokens = []
    made.model.register_forward_hook(
        lambda module, args, options, _: tokens.append(options["input_ids"].numel()),
        with_kwargs=True,
    )
    made.train()
    data = made.selective_loader.dataset
    chosen = [batch["selection_indices"].tolist() for batch in made.given]
    assert tokens == [sum(len(data[index]["input_ids"]) for index in batch) for batch in chosen]
    assert made.state.global_step == len(tokens) == 5
    whole = sum(len(data[index]["input_ids"]) for index in range(len(data)))
    assert sum(tokens) < 0.6 * 2 * whole  # of two epochs


def test_a_batch_never_has_more_tokens_than_the_plain_trainer_s_and_nothing_is_lost(tmp_path):
    made = sft.trainer(
        tmp_path,
        EACH,
        sft.texts(100),
        max_steps=99,
        per_device_train_batch_size=2,
        train_sampling_strategy="sequential",
        **PACKED,
    )
    most = 2 * max(map(sum, made.train_dataset["seq_lengths"]))
    epochs = made.get_train_dataloader()
    batches = [list(epochs), list(epochs)]
    sizes = [batch["input_ids"].numel() for each in batches for batch in each]
    assert 0.7 * most < sum(sizes) / len(sizes) < max(sizes) <= most
    seen, later = (
        [index for batch in each for index in batch["selection_indices"].tolist()]
        for each in batches
    )
    lost = set(range(len(epochs.dataset))) - set(seen)
    assert 0 < len(lost) < 8  # documents that the last batch had no room for
    assert set(later[: len(lost)]) == lost


@pytest.mark.parametrize("epochs", [1, 3])
def test_packed_rows_are_trained_on_in_all_epochs_however_many_steps_that_takes(tmp_path, epochs):
    words = [words for words, _ in text.sentences()[:60]]
    lengths = [90] * 10 + [12] * 50  # of which few fill a row together
    data = Dataset.from_dict({"text": [(5 * a)[:b] for a, b in zip(words, lengths, strict=True)]})
    rates = []

    class Noting(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, lr_scheduler, **_):
            rates.append(lr_scheduler.get_last_lr()[0])

    def trained(resume=None):
        made = sft.trainer(
            tmp_path,
            EACH,
            data,
            num_train_epochs=epochs,
            per_device_train_batch_size=1,
            save_strategy="steps",
            save_steps=1,
            options={"callbacks": [Noting()]},
            **PACKED,
        )
        made.train(resume_from_checkpoint=resume)
        return made

    whole = trained()
    planned, steps = whole.selective_loader.planned_batches, whole.state.global_step
    assert steps > planned
    assert whole.selective_loader.stats.candidates == 60 * epochs
    assert whole.state.epoch == epochs
    assert rates[0] > rates[steps // 2] > rates[-1]  # and it ends with the epochs, not before
    assert rates[planned - 1] > 0
    resumed = trained(f"{tmp_path}/checkpoint-{planned + 1}")
    assert resumed.state.global_step == steps
    assert torch.equal(text.weights(resumed), text.weights(whole))


@pytest.mark.parametrize("options", [{}, PACKED], ids=["padded", "packed"])
def test_losses_are_recorded_without_another_forward_pass(tmp_path, options):
    made = sft.trainer(
        tmp_path, sb.recorded_sb(rate=1 / 2), max_steps=4, learning_rate=0.0, **options
    )
    passes = []
    made.model.register_forward_hook(lambda *_: passes.append(1))
    made.train()
    assert len(passes) == 4
    assert_remembered(made.selective_loader.ledger.recorded, made, least=16)


def test_weights_of_one_change_nothing_but_rounding(tmp_path):
    """InfoBatch weighs every batch; in its first epoch all weights are 1."""
    ended = []
    for strategy in (EACH, sb.infobatch()):
        made = sft.trainer(tmp_path, strategy, gradient_accumulation_steps=2, **PACKED, **ONE_STEP)
        made.train()
        ended.append(text.weights(made))
    torch.testing.assert_close(*ended, rtol=0, atol=2e-6)
    assert not torch.equal(ended[0], text.weights(sft.trainer(tmp_path)))


def test_one_s_own_losses_take_what_the_fused_head_returns(tmp_path):
    def entropies(outputs, batch):
        return outputs["entropy"].sum(1) / outputs["label_mask"].sum(1)

    made = sft.trainer(
        tmp_path,
        sb.recorded_sb(rate=1 / 2),
        options={"losses": entropies},
        max_steps=2,
        learning_rate=0.0,
    )
    made.train()
    found = made.selective_loader.ledger.recorded.observe().scores[0]
    index = next(place for place, score in enumerate(found) if score == score)
    row = torch.tensor(made.train_dataset[index]["input_ids"])[None]
    odds = made.model(input_ids=row).logits[0, :-1].log_softmax(-1)
    entropy = -(odds.exp() * odds).sum(-1).mean()
    assert found[index] == pytest.approx(entropy.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("strategy", "options", "waits"),
    [
        (text.selective(1 / 2), {}, False),
        (
            EACH,  # of which a document waits for the next batch
            PACKED | {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2},
            True,
        ),
        (sb.recorded_sb(rate=1 / 2), PACKED, False),
    ],
    ids=["padded", "packed", "recorded"],
)
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, strategy, options, waits):
    chosen = {"max_steps": 8, "save_strategy": "steps", "save_steps": 6, **options}
    middle = tmp_path / "checkpoint-6"
    ended = []
    for resume in (None, str(middle)):
        made = sft.trainer(tmp_path, strategy, sft.texts(60), **chosen)
        made.train(resume_from_checkpoint=resume)
        ended.append(made)
    assert bool(torch.load(middle / "selection-0-of-1.pt")["beyond"]) is waits
    assert ended[0].selective_loader.stats == ended[1].selective_loader.stats
    assert torch.equal(*map(text.weights, ended))


class Joined(transformers.DataCollatorWithFlattening):
    """A collator of somebody else's that joins examples into one row."""


def test_transformers_own_trainer_packs_selected_examples_too(tmp_path):
    rows = [{"input_ids": ids} for ids in (text.as_bytes(words) for words, _ in text.sentences())]
    packed = []
    for first in range(0, len(rows) - 2, 3):
        three = [row["input_ids"] for row in rows[first : first + 3]]
        positions = [place for ids in three for place in range(len(ids))]
        tokens = [token for ids in three for token in ids]
        packed.append({"input_ids": tokens, "position_ids": positions})
    for data, size in ((rows, 4), (packed, 12)):
        made = text.trainer(
            tmp_path,
            sb.recorded_sb(rate=1 / 2),
            model=sft.speaker(),
            data=data,
            options={"data_collator": Joined()},
            max_steps=3,
            learning_rate=0.0,
        )
        made.train()
        assert made.selective_loader.batch_size == size
        assert_remembered(made.selective_loader.ledger.recorded, made, least=size)
