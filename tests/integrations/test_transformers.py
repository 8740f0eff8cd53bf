"""The Trainer trains on selected examples, and counts, schedules, logs and learns as it should."""

import math
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("transformers")

import fixture_text as text
import transformers
from torch.utils.data import IterableDataset

import selective_backprop as sb
from selective_backprop.integrations import transformers as adapter
from selective_backprop.integrations._transformers._checks import find_padding
from selective_backprop.strategies._auto.wrong_labels import LabelNoise


class Noting(transformers.TrainerCallback):
    """Note the learning rate and the epoch after each step, and the logs."""

    def __init__(self):
        self.rates, self.epochs, self.logs, self.ended, self.seen = [], [], [], [], []

    def on_step_end(self, args, state, control, lr_scheduler, **_):
        self.rates.append(lr_scheduler.get_last_lr()[0])
        self.seen.append(state.epoch)

    def on_substep_end(self, args, state, control, **_):
        pass

    def on_log(self, args, state, control, logs, **_):
        self.logs.append(dict(logs))
        self.epochs.append(state.epoch)

    def on_epoch_end(self, args, state, control, **_):
        self.ended.append((state.global_step, state.epoch))


def noted(folder, strategy, **options):
    noting = Noting()
    made = text.trainer(
        folder, strategy, options={"callbacks": [noting]}, logging_strategy="steps", **options
    )
    made.train()
    return made, noting


@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("epochs", [3, 2.5])
def test_steps_are_counted_exactly_and_the_learning_rate_ends_at_nothing(
    tmp_path, accumulated, epochs
):
    made, noting = noted(
        tmp_path,
        text.selective(rate=1 / 2, warmup_epochs=1),
        num_train_epochs=epochs,
        gradient_accumulation_steps=accumulated,
        logging_steps=1,
    )
    batches = [12, 6, 6] if epochs == 3 else [12, 6, 3]
    steps = sum(batches) // accumulated
    assert made.state.global_step == made.state.max_steps == len(noting.rates) == steps
    assert noting.rates[-1] == 0.0
    assert all(left > right for left, right in zip(noting.rates, noting.rates[1:], strict=False))
    assert made.args.max_steps == -1  # as it was
    assert made.state.num_train_epochs == math.ceil(epochs)
    assert made.state.epoch == epochs
    assert made.selective_loader.stats.kept == steps * accumulated * 4


def test_epochs_are_passes_over_the_data_set_and_end_where_passes_end(tmp_path):
    _, noting = noted(
        tmp_path,
        text.selective(rate=1 / 2, warmup_epochs=1),
        num_train_epochs=3,
        logging_steps=6,
    )
    assert noting.ended == [(12, 1.0), (18, 2.0), (24, 3.0)]
    assert noting.epochs[:4] == [0.5, 1.0, 2.0, 3.0]
    assert noting.seen[::6] == pytest.approx([1 / 12, 7 / 12, 1 + 1 / 6, 2 + 1 / 6])


def test_logs_tell_what_selection_did_and_what_it_cost(tmp_path):
    _, noting = noted(
        tmp_path,
        text.selective(rate=1 / 2, warmup_epochs=1),
        num_train_epochs=2,
        logging_steps=9,
    )
    first, second, last = noting.logs
    assert first["selection_kept"] == first["selection_candidates"] == 36
    assert second["selection_candidates"] == 96
    assert second["selection_kept"] == 48 + 24
    assert second["selection_rate"] == 72 / 96
    scored = second["selection_scored"]
    assert scored == 48 + 4  # the very first batch is scored on trial
    assert second["selection_cost"] == (scored + 3 * 72) / (3 * 96)
    assert last["selection_kept"] == 72
    assert "train_loss" in last


@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize(
    "strategy",
    [text.selective(draw="bernoulli", warmup_epochs=1), sb.infobatch(), sb.recorded_sb(1 / 2)],
    ids=lambda each: each.name,
)
def test_where_steps_are_not_known_ahead_the_learning_rate_decays_by_candidates(
    tmp_path, strategy, accumulated
):
    made, noting = noted(
        tmp_path,
        strategy,
        num_train_epochs=6,
        gradient_accumulation_steps=accumulated,
        logging_steps=1,
    )
    without = 6 * 12 // accumulated
    stats = made.selective_loader.stats
    assert made.selective_loader.next_epoch == 6
    assert stats.candidates == 6 * 48
    assert made.state.global_step == len(noting.rates) < 0.9 * without
    assert made.state.max_steps == without
    assert made.state.epoch == 6
    assert made.args.max_steps == -1
    # Candidates of up to an update come after the last step; of three batches, those of an epoch.
    assert noting.rates[-1] <= {1: 2 / 72, 3: 12 / 24}[accumulated] * 1e-2
    assert all(left > right for left, right in zip(noting.rates, noting.rates[1:], strict=False))


@pytest.mark.parametrize("every", [500, 5])
def test_the_last_step_is_saved_and_evaluated_once_where_it_is_not_known_ahead(tmp_path, every):
    made = text.trainer(
        tmp_path,
        text.selective(draw="bernoulli"),
        num_train_epochs=2,
        save_strategy="steps",
        save_steps=every,
        eval_strategy="steps",
        eval_steps=every,
        options={"eval_dataset": text.classified(4)},
    )
    made.train()
    last = made.state.global_step
    assert last < made.state.max_steps
    evaluated = [entry["step"] for entry in made.state.log_history if "eval_loss" in entry]
    assert evaluated == [*range(every, last, every), last]
    assert {int(each.name.split("-")[1]) for each in tmp_path.iterdir()} == {*evaluated}


@pytest.mark.parametrize("schedule", ["reduce_lr_on_plateau", "greedy"])
def test_a_schedule_that_follows_evaluations_is_left_alone(tmp_path, schedule):
    if schedule == "greedy" and not hasattr(transformers.optimization, "GreedyLR"):
        pytest.skip("this version of transformers has no GreedyLR")
    made = text.trainer(
        tmp_path,
        sb.auto(),
        lr_scheduler_type=schedule,
        eval_strategy="epoch",
        options={"eval_dataset": text.classified(4)},
    )
    made.train()
    assert made.selective_loader.next_epoch == 2


def test_a_loader_that_a_callback_asks_for_is_not_the_one_trained_with(tmp_path):
    class Asking(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 3:
                assert len(list(made.get_train_dataloader())) == 12
                assert state.epoch == 0.25

    made = text.trainer(tmp_path, sb.recorded_sb(1 / 2), options={"callbacks": [Asking()]})
    made.train()
    loader = made.selective_loader
    assert loader.stats.candidates == 96
    made.get_train_dataloader()
    assert made.selective_loader is loader


def test_a_length_that_is_not_known_ahead_is_asked_for_where_epochs_are_no_whole_number(tmp_path):
    made = text.trainer(tmp_path, text.selective(draw="bernoulli"), num_train_epochs=2.5)
    with pytest.raises(sb.ConfigurationError, match=r"selective-backprop.*Pass max_steps="):
        made.train()
    made = text.trainer(tmp_path, text.selective(draw="bernoulli"), max_steps=14, learning_rate=0.0)
    made.train()
    assert made.state.global_step == 14
    assert made.selective_loader.next_epoch > 2


def test_fractions_of_training_are_fractions_of_the_steps_where_steps_end_it(tmp_path):
    made = text.trainer(
        tmp_path, sb.selective_backprop(rate=1 / 2, warmup_epochs=0, end=0.5), max_steps=24
    )
    made.train()
    stats = made.selective_loader.stats
    assert made.state.global_step == 24
    # half of the steps take twice as many candidates as rows, the others as many
    assert abs(stats.candidates - (12 * 8 + 12 * 4)) <= 8


def test_an_update_that_cannot_be_filled_is_refused(tmp_path):
    made = text.trainer(
        tmp_path, text.selective(), num_train_epochs=1, gradient_accumulation_steps=9
    )
    with pytest.raises(sb.ConfigurationError, match="update of 9"):
        made.train()
    made = text.trainer(tmp_path, sb.infobatch(), max_steps=9, gradient_accumulation_steps=13)
    with pytest.raises(sb.ConfigurationError, match="13 batches: lower gradient_accumulation"):
        made.train()


@pytest.mark.parametrize(
    # BERT's classifier averages over each batch itself, so that the Trainer adds means up
    ("model", "accumulated"),
    [(text.classifier, 1), (text.speaker, 1), (text.speaker, 2)],
)
def test_weights_of_one_change_nothing_but_rounding(tmp_path, model, accumulated):
    """InfoBatch weighs every batch; in its first epoch all weights are 1."""
    data = text.classified(32) if model is text.classifier else text.spoken(32)
    ended = []
    for strategy in (None, sb.infobatch()):
        made = text.trainer(
            tmp_path,
            strategy,
            model=model(),
            data=data,
            max_steps=8 // accumulated,
            gradient_accumulation_steps=accumulated,
            optim="sgd",
            learning_rate=0.05,
            max_grad_norm=0.0,  # which would hide a loss of another scale
        )
        made.train()
        ended.append(made)
    torch.testing.assert_close(*map(text.weights, ended), rtol=0, atol=2e-6)
    assert not torch.equal(text.weights(ended[0]), text.weights(text.trainer(tmp_path, None)))


def test_an_update_of_a_language_model_is_the_mean_over_all_of_its_tokens(tmp_path):
    """Batches of different lengths count by their tokens, and not each for itself."""
    batches = []

    class Watched(adapter.SelectiveTrainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            batches.append(dict(inputs))
            return super().training_step(model, inputs, num_items_in_batch)

    model = text.speaker(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    twin = text.speaker(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    args = text.arguments(
        tmp_path,
        max_steps=1,
        gradient_accumulation_steps=3,
        optim="sgd",
        learning_rate=1.0,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
    )
    made = Watched(model, args, text.collate, text.spoken(60), strategy=text.selective(1 / 3))
    made.train()
    assert len(batches) == 3
    total = torch.zeros(())
    tokens = 0
    for batch in batches:
        logits = twin(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        targets = batch["labels"][:, 1:]
        entropy = torch.nn.functional.cross_entropy(
            logits[:, :-1].transpose(1, 2), targets, reduction="sum"
        )
        # GPT-2 names no loss type, so that the Trainer counts its first labels too
        counted = batch["labels"] if twin.loss_type is None else targets
        total, tokens = total + entropy, tokens + int((counted != -100).sum())
    (total / tokens).backward()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter -= parameter.grad
    moved = torch.cat([value.detach().flatten() for value in twin.parameters()])
    torch.testing.assert_close(text.weights(made), moved, rtol=0, atol=2e-5)


def test_rows_of_batches_of_different_widths_are_padded_with_what_they_mean(tmp_path):
    made = text.trainer(tmp_path, text.selective(1 / 3), model=text.speaker(), data=text.spoken(60))
    loader = made.get_train_dataloader()
    plain = made.train_dataset
    widths = set()
    for batch in loader:
        widths |= set(batch["attention_mask"].sum(1).tolist())
        for place, index in enumerate(batch["selection_indices"].tolist()):
            ids = plain[index]["input_ids"]
            rest = batch["input_ids"].shape[1] - len(ids)
            assert batch["input_ids"][place].tolist() == ids + [0] * rest
            assert batch["labels"][place].tolist() == ids + [-100] * rest
            assert batch["attention_mask"][place].tolist() == [1] * len(ids) + [0] * rest
    assert len(widths) > 3


def test_token_ids_are_padded_with_the_tokenizer_s_token_or_else_with_the_model_s():
    def token(tokenizer, config):
        tokenizer, config = (SimpleNamespace(pad_token_id=each) for each in (tokenizer, config))
        return find_padding(text.collate(text.spoken(2)), tokenizer, config, None)["input_ids"]

    assert (token(0, 5), token(None, 5), token(None, -1), token(None, None)) == (0, 5, 0, 0)


@pytest.mark.parametrize("pad", [None, {"label": 0}])
def test_rows_of_a_stream_are_padded_too_and_only_keys_that_were_given_must_exist(tmp_path, pad):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(text.classified(48))

    options = {"data": Stream(), "max_steps": 6, "options": {"pad": pad} if pad else None}
    made = text.trainer(tmp_path, text.selective(), **options)
    if pad:
        with pytest.raises(sb.BatchError, match="pad= names 'label', but"):
            made.train()
        return
    made.train()
    assert made.selective_loader.stats.kept == 24


def test_confidence_is_read_from_losses_of_labels_that_are_not_smoothed(tmp_path):
    data = text.classified(8)
    model = text.classifier(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    options = {"learning_rate": 0.0, "label_smoothing_factor": 0.5, "max_steps": 2}
    made = text.trainer(tmp_path, sb.auto(), model=model, data=data, **options)
    made.train()
    found = made.selective_loader.ledger.recorded.observe().scores[0]
    expected = [model(**text.collate([row])).loss.item() for row in data]
    assert found.tolist() == pytest.approx(expected, rel=1e-4)
    assert made.selective_loader.class_visits.visits


def test_a_trainer_of_somebody_else_s_is_made_selective_by_deriving_from_both(tmp_path):
    seen = []

    class Theirs(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            seen.append(sorted(inputs))
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    class Mine(adapter.SelectiveTrainer, Theirs):
        pass

    args = text.arguments(tmp_path, max_steps=3)
    Mine(
        text.classifier(), args, text.collate, text.classified(48), strategy=text.selective()
    ).train()
    assert seen == [["attention_mask", "input_ids", "labels"]] * 3


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_predictions_of_the_first_epoch_tell_how_many_labels_are_wrong(
    tmp_path, monkeypatch, smoothing
):
    seen, observe = [], LabelNoise.observe

    def noting(self, outputs, targets, smoothing, batch):
        seen.append((outputs.shape, smoothing))
        observe(self, outputs, targets, smoothing, batch)

    monkeypatch.setattr(LabelNoise, "observe", noting)
    monkeypatch.setattr("selective_backprop.strategies._auto.wrong_labels.LEAST_BATCHES", 1)
    options = {"label_smoothing_factor": smoothing, "num_train_epochs": 2}
    made = text.trainer(tmp_path, sb.auto(), data=text.classified(48), **options)
    made.train()
    assert {(shape[1], each) for shape, each in seen} == {(made.model.config.num_labels, smoothing)}
    assert made.selective_loader._parts.pipeline.memory.label_noise.totals[0] >= 24
