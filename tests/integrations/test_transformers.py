"""The Trainer trains on selected examples, and counts, schedules, logs and resumes as it should."""

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
from selective_backprop.integrations._transformers._selection import find_padding
from selective_backprop.strategies._auto.wrong_labels import LabelNoise


class Noting(transformers.TrainerCallback):
    """Note the learning rate and the epoch after each step, and the logs."""

    def __init__(self):
        self.rates, self.epochs, self.logs, self.ended, self.seen = [], [], [], [], []

    def on_step_end(self, args, state, control, lr_scheduler, **_):
        self.rates.append(lr_scheduler.get_last_lr()[0])
        self.seen.append(state.epoch)

    def on_log(self, args, state, control, logs, **_):
        self.logs.append(dict(logs))
        self.epochs.append(state.epoch)

    def on_epoch_end(self, args, state, control, **_):
        self.ended.append((state.global_step, state.epoch))


WARM = text.selective(rate=1 / 2, warmup_epochs=1)
PLAIN_SGD = {"optim": "sgd", "learning_rate": 0.05, "max_grad_norm": 0.0}  # which hides no scale


def noted(folder, strategy, **options):
    noting = Noting()
    options = {"logging_strategy": "steps", "logging_steps": 1, **options}
    made = text.trainer(folder, strategy, options={"callbacks": [noting]}, **options)
    made.train()
    assert all(left > right for left, right in zip(noting.rates, noting.rates[1:], strict=False))
    return made, noting


@pytest.mark.parametrize(("epochs", "accumulated"), [(3, 1), (2.5, 3)])
def test_steps_are_counted_exactly_and_the_learning_rate_ends_at_0(tmp_path, accumulated, epochs):
    options = {"num_train_epochs": epochs, "gradient_accumulation_steps": accumulated}
    made, noting = noted(tmp_path, WARM, **options)
    batches = [12, 6, 6] if epochs == 3 else [12, 6, 3]
    steps = sum(batches) // accumulated
    assert made.state.global_step == made.state.max_steps == len(noting.rates) == steps
    assert noting.rates[-1] == 0.0
    assert made.args.max_steps == -1  # as it was
    assert made.state.num_train_epochs == math.ceil(epochs)
    assert made.state.epoch == epochs
    assert made.selective_loader.stats.kept == steps * accumulated * 4


def test_epochs_are_passes_over_the_data_set_and_logs_tell_what_selection_did(tmp_path):
    _, noting = noted(tmp_path, WARM, num_train_epochs=3, logging_steps=6)
    assert noting.ended == [(12, 1.0), (18, 2.0), (24, 3.0)]
    assert noting.epochs[:4] == [0.5, 1.0, 2.0, 3.0]
    assert noting.seen[::6] == pytest.approx([1 / 12, 7 / 12, 1 + 1 / 6, 2 + 1 / 6])
    first, _, third, _, last = noting.logs
    assert first["selection_kept"] == first["selection_candidates"] == 24
    assert third["selection_candidates"] == 96
    assert third["selection_kept"] == 48 + 24
    assert third["selection_rate"] == 72 / 96
    scored = third["selection_scored"]
    assert scored == 48 + 4  # the very first batch is scored on trial
    assert third["selection_cost"] == (scored + 3 * 72) / (3 * 96)
    assert last["selection_kept"] == 96
    assert "train_loss" in last


COINS = text.selective(draw="bernoulli", warmup_epochs=1)


@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("strategy", [COINS, sb.infobatch()], ids=lambda each: each.name)
def test_where_steps_are_unknown_the_rate_decays_by_candidates(tmp_path, strategy, accumulated):
    options = {"num_train_epochs": 6, "gradient_accumulation_steps": accumulated}
    made, noting = noted(tmp_path, strategy, **options)
    without = 6 * 12 // accumulated
    stats = made.selective_loader.stats
    assert made.selective_loader.next_epoch == made.state.epoch == 6
    assert stats.candidates == 6 * 48
    assert made.state.global_step == len(noting.rates) < 0.9 * without
    assert made.state.max_steps == without
    assert made.args.max_steps == -1
    # Candidates of up to an update come after the last step; of three batches, those of an epoch.
    assert noting.rates[-1] <= {1: 2 / 72, 3: 12 / 24}[accumulated] * 1e-2


@pytest.mark.parametrize("every", [500, 5])
def test_the_last_step_is_saved_and_evaluated_once_where_it_is_not_known_ahead(tmp_path, every):
    options = {"save_strategy": "steps", "eval_strategy": "steps"}
    options |= {"save_steps": every, "eval_steps": every, "options": EVALUATED}
    made = text.trainer(tmp_path, text.selective(draw="bernoulli"), **options)
    made.train()
    last = made.state.global_step
    assert last < made.state.max_steps
    evaluated = [entry["step"] for entry in made.state.log_history if "eval_loss" in entry]
    assert evaluated == [*range(every, last, every), last]
    assert {int(each.name.split("-")[1]) for each in tmp_path.iterdir()} == {*evaluated}


EVALUATED = {"eval_dataset": text.classified(4)}


@pytest.mark.parametrize("schedule", ["reduce_lr_on_plateau", "greedy"])
def test_a_schedule_that_follows_evaluations_is_left_alone(tmp_path, schedule):
    if schedule == "greedy" and not hasattr(transformers.optimization, "GreedyLR"):
        pytest.skip("this version of transformers has no GreedyLR")
    options = {"lr_scheduler_type": schedule, "eval_strategy": "epoch", "options": EVALUATED}
    made = text.trainer(tmp_path, sb.auto(), **options)
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
    coins = text.selective(draw="bernoulli")
    with pytest.raises(sb.ConfigurationError, match=r"selective-backprop.*Pass max_steps="):
        text.trainer(tmp_path, coins, num_train_epochs=2.5).train()
    made = text.trainer(tmp_path, coins, max_steps=14, learning_rate=0.0)
    made.train()
    assert made.state.global_step == 14
    assert made.selective_loader.next_epoch > 2


def test_fractions_of_training_are_fractions_of_the_steps_where_steps_end_it(tmp_path):
    made = text.trainer(tmp_path, text.selective(end=0.5), max_steps=24)
    made.train()
    stats = made.selective_loader.stats
    assert made.state.global_step == 24
    # half of the steps take twice as many candidates as rows, the others as many
    assert abs(stats.candidates - (12 * 8 + 12 * 4)) <= 8


def test_steps_are_known_ahead_if_examples_are_joined_but_rows_are_not_packed(tmp_path):
    joined = {"data_collator": transformers.DataCollatorWithFlattening()}
    speaks = {"model": text.speaker(), "data": text.spoken(48), "options": joined}
    updates = text.trainer(tmp_path, text.selective(1 / 2), **speaks).get_train_dataloader()
    assert (updates.count(2), updates.counts_candidates) == (12, False)


def test_an_update_that_cannot_be_filled_is_refused(tmp_path):
    for strategy, options, batches in (
        (text.selective(), {"num_train_epochs": 1}, 9),
        (sb.infobatch(), {"max_steps": 9}, 13),
    ):
        made = text.trainer(tmp_path, strategy, **options, gradient_accumulation_steps=batches)
        words = f"update of {batches} .*lower gradient_acc"
        with pytest.raises(sb.ConfigurationError, match=words):
            made.train()


# BERT's classifier averages over each batch itself, so that the Trainer adds means up
@pytest.mark.parametrize(("model", "accumulated"), [(text.classifier, 1), (text.speaker, 2)])
def test_weights_of_one_change_nothing_but_rounding(tmp_path, model, accumulated):
    """InfoBatch weighs every batch; in its first epoch all weights are 1."""
    data = text.classified(32) if model is text.classifier else text.spoken(32)
    options = {"max_steps": 8 // accumulated, "gradient_accumulation_steps": accumulated}
    ended = []
    for strategy in (None, sb.infobatch()):
        made = text.trainer(tmp_path, strategy, model=model(), data=data, **options, **PLAIN_SGD)
        before = text.weights(made)
        made.train()
        ended.append(text.weights(made))
    torch.testing.assert_close(*ended, rtol=0, atol=2e-6)
    assert not torch.equal(ended[0], before)


def test_an_update_of_a_language_model_is_the_mean_over_all_of_its_tokens(tmp_path):
    """Batches of different lengths count by their tokens, and not each for itself."""
    batches = []

    class Watched(adapter.SelectiveTrainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            batches.append(dict(inputs))
            return super().training_step(model, inputs, num_items_in_batch)

    still = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model, twin = text.speaker(**still), text.speaker(**still)
    options = PLAIN_SGD | {"learning_rate": 1.0, "lr_scheduler_type": "constant"}
    args = text.arguments(tmp_path, max_steps=1, gradient_accumulation_steps=3, **options)
    made = Watched(model, args, text.collate, text.spoken(60), strategy=text.selective(1 / 3))
    made.train()
    assert len(batches) == 3
    total, tokens = torch.zeros(()), 0
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
    moved = [(value - value.grad).detach().flatten() for value in twin.parameters()]
    torch.testing.assert_close(text.weights(made), torch.cat(moved), rtol=0, atol=2e-5)


def test_rows_of_batches_of_different_widths_are_padded_with_what_they_mean(tmp_path):
    made = text.trainer(tmp_path, text.selective(1 / 3), model=text.speaker(), data=text.spoken(60))
    widths = set()
    for batch in made.get_train_dataloader():
        widths |= set(batch["attention_mask"].sum(1).tolist())
        for place, index in enumerate(batch["selection_indices"].tolist()):
            ids = made.train_dataset[index]["input_ids"]
            rest = batch["input_ids"].shape[1] - len(ids)
            row = {"input_ids": ids + [0] * rest, "labels": ids + [-100] * rest}
            row |= {"attention_mask": [1] * len(ids) + [0] * rest}
            assert {key: batch[key][place].tolist() for key in row} == row
    assert len(widths) > 3


def test_token_ids_are_padded_with_the_tokenizer_s_token_or_else_with_the_model_s():
    for tokenizer, config, token in ((0, 5, 0), (None, 5, 5), (None, -1, 0), (None, None, 0)):
        ids = [SimpleNamespace(pad_token_id=each) for each in (tokenizer, config)]
        assert find_padding(*ids, None)["input_ids"] == token


def test_rows_of_a_stream_are_padded_too_and_only_keys_that_were_given_must_exist(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(text.classified(48))

    options = {"data": Stream(), "max_steps": 6}
    made = text.trainer(tmp_path, text.selective(), **options)
    made.train()
    assert made.selective_loader.stats.kept == 24
    made = text.trainer(tmp_path, text.selective(), options={"pad": {"label": 0}}, **options)
    with pytest.raises(sb.BatchError, match="pad= names 'label', but"):
        made.train()


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


def test_predictions_of_the_first_epoch_tell_how_many_labels_are_wrong(tmp_path, monkeypatch):
    seen, observe = set(), LabelNoise.observe

    def noting(self, outputs, targets, smoothing, batch):
        seen.add((outputs.shape[1], smoothing))
        observe(self, outputs, targets, smoothing, batch)

    monkeypatch.setattr(LabelNoise, "observe", noting)
    monkeypatch.setattr("selective_backprop.strategies._auto.wrong_labels.LEAST_BATCHES", 1)
    for smoothing in (0.0, 0.5):
        seen.clear()
        made = text.trainer(tmp_path, sb.auto(), label_smoothing_factor=smoothing)
        made.train()
        assert seen == {(made.model.config.num_labels, smoothing)}
        assert made.selective_loader._pipeline.memory.label_noise.totals[0] >= 24


def trained(folder, strategy, resume=None, **options):
    chosen = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": 7}
    made = text.trainer(folder, strategy, **(chosen | options))
    made.train(resume_from_checkpoint=resume)
    return made


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (text.selective(1 / 3), {"gradient_accumulation_steps": 2, "save_steps": 3}),
        (sb.infobatch(), {"max_steps": 25}),
        (WARM, {"save_steps": 6}),
        (WARM, {"gradient_accumulation_steps": 5, "save_strategy": "epoch"}),
    ],
    ids=lambda each: each.name if isinstance(each, sb.Strategy) else ",".join(map(str, each)),
)
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, strategy, options):
    whole = trained(tmp_path, strategy, **options)
    checkpoints = sorted(tmp_path.iterdir(), key=lambda path: int(path.name.split("-")[1]))
    middle = checkpoints[len(checkpoints) // 2 - 1]
    assert (middle / "selection-0-of-1.pt").is_file()
    for saved in (middle, checkpoints[-1]):
        resumed = trained(tmp_path, strategy, resume=str(saved), **options)
        assert resumed.state.global_step == whole.state.global_step
        assert resumed.selective_loader.stats == whole.selective_loader.stats
        assert torch.equal(text.weights(resumed), text.weights(whole))
        assert resumed.state.epoch == whole.state.epoch
        assert resumed.args.ignore_data_skip is False  # as it was


def test_a_checkpoint_without_selection_or_of_more_processes_is_refused(tmp_path):
    trained(tmp_path, None, max_steps=7)
    with pytest.raises(sb.ConfigurationError, match="saved without selection"):
        trained(tmp_path, text.selective(), resume=True)
    (tmp_path / "checkpoint-7" / "selection-0-of-2.pt").touch()
    with pytest.raises(sb.ConfigurationError, match=r"another number of .* \(selection-0-of-2"):
        trained(tmp_path, text.selective(), resume=True)


def test_what_cannot_be_gone_on_from_is_not_saved(tmp_path):
    trained(tmp_path, text.selective(), max_steps=7, save_only_model=True)
    assert not (tmp_path / "checkpoint-7" / "selection-0-of-1.pt").exists()


def test_a_second_training_begins_anew(tmp_path):
    made = text.trainer(tmp_path, text.selective(), num_train_epochs=1)
    made.train()
    first = made.selective_loader
    made.train()
    assert made.selective_loader is not first
    assert made.selective_loader.stats.candidates == first.stats.candidates
