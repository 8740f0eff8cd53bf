"""TRL's SFTTrainer trains on selected examples, padded or packed, as it would on them alone."""

import itertools

import pytest
import torch

pytest.importorskip("trl")

import fixture_sft as sft
import fixture_text as text
import transformers
from datasets import Dataset
from torch.nn import functional

import selective_backprop as sb

pytestmark = pytest.mark.slow
PACKED = {"packing": True}
SPLIT = {"packing_strategy": "bfd_split", "max_length": 30}
KINDS = {
    "completion": (sft.answers, {}),
    "assistant": (sft.talks, {"assistant_only_loss": True}),
    "padding-free": (sft.texts, {"padding_free": True, "max_length": None}),
    "packed completion": (sft.answers, PACKED),
    "split": (sft.texts, PACKED | SPLIT),
}
EACH = sb.random_backprop(1)  # draws documents, and leaves none out
# A limit of the gradient would hide a loss of another scale.
ONE_STEP = {"max_steps": 1, "optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0}
ONE_STEP |= {"lr_scheduler_type": "constant"}


class Watched(sft.Selective):
    """Note what each training step is given."""

    def training_step(self, model, inputs, *args, **options):
        self.given = [*getattr(self, "given", []), dict(inputs)]
        return super().training_step(model, inputs, *args, **options)


def trained(*args, resume=None, **options):
    made = sft.trainer(*args, **options)
    made.train(resume_from_checkpoint=resume)
    return made


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


@pytest.mark.parametrize("kind", [*KINDS, "wrapped"])
def test_traditional_training_is_the_plain_trainer_s_bit_for_bit(tmp_path, kind):
    wrapped = (sft.texts, PACKED | {"packing_strategy": "wrapped"})
    data, options = KINDS.get(kind, wrapped)
    options = {"max_steps": 8, "logging_strategy": "steps", "logging_steps": 1, **options}
    plain, ours = (
        trained(tmp_path, strategy, data(40), **options) for strategy in (None, sb.traditional())
    )
    assert torch.equal(text.weights(ours), text.weights(plain))
    losses, others = (
        [each["loss"] for each in made.state.log_history if "loss" in each]
        for made in (plain, ours)
    )
    assert losses == others
    assert len(losses) == 8


def test_a_batch_of_all_packed_rows_is_the_plain_trainer_s_and_weights_of_one_change_nothing(
    tmp_path,
):
    """InfoBatch weighs every batch; in its first epoch all weights are 1."""
    options = {"train_sampling_strategy": "sequential", "per_device_train_batch_size": 21}
    ended = [
        text.weights(trained(tmp_path, strategy, **PACKED, **options, **ONE_STEP))
        for strategy in (None, EACH, sb.infobatch())
    ]
    torch.testing.assert_close(ended[1], ended[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(ended[2], ended[0], rtol=0, atol=2e-6)
    assert not torch.equal(ended[0], text.weights(sft.trainer(tmp_path)))
    options = {"gradient_accumulation_steps": 2, **PACKED, **ONE_STEP}
    ended = [text.weights(trained(tmp_path, each, **options)) for each in (EACH, sb.infobatch())]
    torch.testing.assert_close(*ended, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "attention"), [*((kind, "sdpa") for kind in KINDS), ("split", "eager")]
)
def test_an_example_s_score_is_its_own_mean_loss_wherever_it_lies(tmp_path, kind, attention):
    data, options = KINDS[kind]
    strategy = sb.stale_sb(rate=1 / 2, schedule=sb.Schedule())  # remembers its scores
    options = {"model": sft.speaker(attention), "max_steps": 2, "learning_rate": 0.0, **options}
    made = trained(tmp_path, strategy, data(20), **options)
    assert_remembered(made.selective_loader.ledger.scored, made, least=16)


@pytest.mark.parametrize("kind", ["completion", "assistant", "packed completion"])
def test_an_update_is_the_mean_over_all_tokens_of_what_was_selected(tmp_path, kind):
    data, options = KINDS[kind]
    options = {"kind": Watched, "gradient_accumulation_steps": 2, **ONE_STEP, **options}
    made = trained(tmp_path, text.selective(1 / 2), data(40), **options)
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
    options = {"per_device_train_batch_size": 2, "train_sampling_strategy": "sequential", **PACKED}
    made = sft.trainer(tmp_path, EACH, sft.texts(100), max_steps=99, **options)
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


def test_packed_rows_are_trained_on_in_all_epochs_however_many_steps_that_takes(tmp_path):
    words = [words for words, _ in text.sentences()[:60]]
    lengths = [90] * 10 + [12] * 50  # of which few fill a row together
    data = Dataset.from_dict({"text": [(5 * a)[:b] for a, b in zip(words, lengths, strict=True)]})
    rates = []

    class Noting(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, lr_scheduler, **_):
            rates.append(lr_scheduler.get_last_lr()[0])

    options = {"num_train_epochs": 3, "per_device_train_batch_size": 1, **PACKED}
    options |= {"save_strategy": "steps", "save_steps": 1, "options": {"callbacks": [Noting()]}}
    whole = trained(tmp_path, EACH, data, **options)
    planned, steps = whole.selective_loader.planned_batches, whole.state.global_step
    assert steps > planned
    assert whole.selective_loader.stats.candidates == 60 * 3
    assert whole.state.epoch == 3
    assert rates[0] > rates[steps // 2] > rates[-1]  # and it ends with the epochs, not before
    assert rates[planned - 1] > 0
    saved = f"{tmp_path}/checkpoint-{planned + 1}"
    resumed = trained(tmp_path, EACH, data, resume=saved, **options)
    assert resumed.state.global_step == steps
    assert torch.equal(text.weights(resumed), text.weights(whole))


@pytest.mark.parametrize("options", [{}, PACKED], ids=["padded", "packed"])
def test_losses_are_recorded_without_another_forward_pass(tmp_path, options):
    options = {"max_steps": 4, "learning_rate": 0.0, **options}
    made = sft.trainer(tmp_path, sb.recorded_sb(rate=1 / 2), **options)
    passes = []
    made.model.register_forward_hook(lambda *_: passes.append(1))
    made.train()
    assert len(passes) == 4
    assert_remembered(made.selective_loader.ledger.recorded, made, least=16)


def test_one_s_own_losses_take_what_the_fused_head_returns(tmp_path):
    def entropies(outputs, batch):
        return outputs["entropy"].sum(1) / outputs["label_mask"].sum(1)

    options = {"options": {"losses": entropies}, "max_steps": 2, "learning_rate": 0.0}
    made = trained(tmp_path, sb.recorded_sb(rate=1 / 2), **options)
    found = made.selective_loader.ledger.recorded.observe().scores[0]
    index = next(place for place, score in enumerate(found) if score == score)
    row = torch.tensor(made.train_dataset[index]["input_ids"])[None]
    odds = made.model(input_ids=row).logits[0, :-1].log_softmax(-1)
    entropy = -(odds.exp() * odds).sum(-1).mean()
    assert found[index] == pytest.approx(entropy.item(), rel=1e-4)


@pytest.mark.parametrize("waits", [True, False])  # whether a document waits for the next batch
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, waits):
    strategy = EACH if waits else sb.recorded_sb(rate=1 / 2)
    options = {"max_steps": 8, "save_strategy": "steps", "save_steps": 6, **PACKED}
    if waits:
        options |= {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
    middle = tmp_path / "checkpoint-6"
    whole, resumed = (
        trained(tmp_path, strategy, sft.texts(60), resume=resume, **options)
        for resume in (None, str(middle))
    )
    assert bool(torch.load(middle / "selection-0-of-1.pt")["beyond"]) is waits
    assert whole.selective_loader.stats == resumed.selective_loader.stats
    assert torch.equal(*map(text.weights, (whole, resumed)))


class Joined(transformers.DataCollatorWithFlattening):
    """A collator of somebody else's that joins examples into one row."""


def test_transformers_own_trainer_packs_selected_examples_too(tmp_path):
    rows = [{"input_ids": ids} for ids in (text.as_bytes(words) for words, _ in text.sentences())]
    packed = []
    for first in range(0, len(rows) - 2, 3):
        three = [row["input_ids"] for row in rows[first : first + 3]]
        positions = [place for ids in three for place in range(len(ids))]
        packed.append({"input_ids": [*itertools.chain(*three)], "position_ids": positions})
    options = {"options": {"data_collator": Joined()}, "max_steps": 3, "learning_rate": 0.0}
    for data, size in ((rows, 4), (packed, 12)):
        strategy, model = sb.recorded_sb(rate=1 / 2), sft.speaker()
        made = text.trainer(tmp_path, strategy, model=model, data=data, **options)
        made.train()
        assert made.selective_loader.batch_size == size
        assert_remembered(made.selective_loader.ledger.recorded, made, least=size)


def refused(made, *words):
    with pytest.raises(sb.ConfigurationError) as error:
        made.train()
    assert made.state.global_step == 0
    for word in words:
        assert word in str(error.value)


def test_a_stream_of_joined_examples_is_refused(tmp_path):
    data = sft.texts(20).to_iterable_dataset()
    made = sft.trainer(tmp_path, text.selective(), data, packing=True, max_steps=3)
    refused(made, "stream", "packing=False and padding_free=False")
    pad = {"pad": {"input_ids": 0, "attention_mask": 0, "labels": -100}}
    made = sft.trainer(tmp_path, text.selective(), data, options=pad, max_steps=3)
    made.train()
    assert made.state.global_step == 3
    made = sft.trainer(tmp_path, sb.traditional(), data, packing=True, max_steps=3)
    made.train()
    assert made.state.global_step == 3


def test_joined_examples_without_positions_by_length_or_of_one_class_are_refused(tmp_path):
    Joining, half = transformers.DataCollatorWithFlattening, text.selective()
    options = {"options": {"data_collator": Joining(return_position_ids=False)}}
    made = text.trainer(tmp_path, half, model=sft.speaker(), data=text.spoken(20), **options)
    refused(made, "DataCollatorWithFlattening", "position_ids", "attend to one another")
    options = {"packing": True, "train_sampling_strategy": "group_by_length"}
    refused(sft.trainer(tmp_path, half, **options), "LengthGrouped", "'random' or 'sequential'")
    data = [{"input_ids": text.as_bytes("one two"), "labels": [1] * 7}] * 20
    made = text.trainer(tmp_path, half, data=data, options={"data_collator": Joining()})
    refused(made, "BertForSequenceClassification", "one label", "pad")


def test_weights_need_a_loss_that_is_known_by_row(tmp_path):
    with pytest.raises(sb.ConfigurationError, match=r"infobatch weighs.*loss_type='dft'"):
        sft.trainer(tmp_path, sb.infobatch(), loss_type="dft")
    made = sft.trainer(tmp_path, text.selective(), loss_type="dft", max_steps=2, packing=True)
    before = text.weights(made).clone()
    made.train()
    assert not torch.equal(before, text.weights(made))
