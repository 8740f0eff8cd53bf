"""What the Trainer cannot do with selection is refused; a loss of the user's own is trained on."""

import pytest
import torch

pytest.importorskip("transformers")

import fixture_text as text
import transformers
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.integrations.transformers import SelectiveTrainer


def test_an_option_that_selection_cannot_honour_is_refused_with_its_reason(tmp_path):
    for name, value, reason in (
        ("auto_find_batch_size", True, "smaller batches"),
        ("train_sampling_strategy", "batch_rebalance", "selection regroups"),
        ("enable_jit_checkpoint", True, "without telling callbacks"),
    ):
        with pytest.raises(sb.ConfigurationError, match=reason):
            text.trainer(tmp_path, text.selective(), **{name: value})


def test_two_rows_of_an_example_are_refused(tmp_path):
    class DataCollatorForVisionPreference(transformers.DefaultDataCollator):
        """Stands for the one of TRL's DPOTrainer."""

    collate = DataCollatorForVisionPreference()
    with pytest.raises(
        sb.ConfigurationError, match="VisionPreference makes two rows of an example"
    ):
        text.trainer(tmp_path, text.selective(), options={"data_collator": collate})


def test_the_loss_of_a_router_cannot_be_weighted(tmp_path):
    config = {"output_router_logits": True, "bos_token_id": None, "eos_token_id": None}
    config |= {"vocab_size": 128, "intermediate_size": 16, "num_local_experts": 2}
    mixtral = transformers.MixtralConfig(**text.SIZE, **config, num_key_value_heads=1)
    model = transformers.MixtralForCausalLM(mixtral)
    with pytest.raises(sb.ConfigurationError, match=r"infobatch weighs .*mixture of experts"):
        text.trainer(tmp_path, sb.infobatch(), model=model)
    text.trainer(tmp_path, sb.recorded_sb(1 / 2), model=model)


def test_a_loss_that_is_one_number_needs_one_per_row_beside_it(tmp_path):
    entropy = torch.nn.functional.cross_entropy
    own = {"compute_loss_func": lambda outputs, labels, **_: entropy(outputs.logits, labels)}
    rows = {"losses": lambda out, batch: entropy(out.logits, batch["labels"], reduction="none")}
    with pytest.raises(sb.ConfigurationError, match=r"one per row.*Pass losses="):
        text.trainer(tmp_path, text.selective(), options=own)
    with pytest.raises(sb.ConfigurationError, match="weighs the rows"):
        text.trainer(tmp_path, sb.infobatch(), options=own | rows)
    made = text.trainer(tmp_path, text.selective(), options=own | rows, num_train_epochs=1)
    made.train()
    assert made.selective_loader.stats.scored == 48
    text.trainer(tmp_path, sb.random_backprop(1 / 2), options=own)


def test_a_regression_head_is_refused_by_what_reads_confidence(tmp_path):
    for options in ({"num_labels": 1}, {"num_labels": 2, "problem_type": "regression"}):
        model = text.classifier(**options)
        with pytest.raises(sb.ConfigurationError, match="regression head, is no cross-entropy"):
            text.trainer(tmp_path, sb.auto(), model=model)
        text.trainer(tmp_path, sb.recorded_sb(1 / 2), model=model)
        losses = {"losses": lambda outputs, batch: outputs.logits[:, 0]}
        text.trainer(tmp_path, sb.auto(), model=model, options=losses)


def test_a_loss_of_ones_own_that_is_no_cross_entropy_is_refused_at_the_first_batch(tmp_path):
    data = [row | {"labels": float(len(row["input_ids"]))} for row in text.classified(48)]
    losses = {"losses": lambda out, batch: (out.logits[:, 0] - batch["labels"]) ** 2}
    model = text.classifier(num_labels=1, problem_type=None)
    made = text.trainer(tmp_path, sb.auto(), model=model, data=data, options=losses)
    before = text.weights(made)
    with pytest.raises(sb.LossError, match=r"targets from [0-9]+ to.*recorded_sb"):
        made.train()
    assert torch.equal(text.weights(made), before)


CLASSES = torch.tensor([1.0, 3.0])
UNWEIGHED = [sb.random_backprop(1 / 2), text.selective(), sb.auto()]


class Net(torch.nn.Module):
    """A model that takes nothing but `x`, and computes no loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return {"logits": self.layer(x)}


def entropies(outputs, batch):
    return functional.cross_entropy(outputs["logits"], batch["labels"], CLASSES, reduction="none")


class Weighted:
    """Part of a Trainer, with class weights. It notes the keys of each batch."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.seen = [*getattr(self, "seen", []), sorted(inputs)]
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = entropies(outputs, {"labels": labels}).mean()
        return (loss, outputs) if return_outputs else loss


WeightedTrainer = type("WeightedTrainer", (Weighted, transformers.Trainer), {})
Before = type("Before", (Weighted, SelectiveTrainer), {})
Behind = type("Behind", (SelectiveTrainer, WeightedTrainer), {})
Inside = type("Inside", (SelectiveTrainer,), {"compute_loss": Weighted.compute_loss})


class Adding(SelectiveTrainer):
    def compute_loss(self, model, inputs, *args, **options):
        return super().compute_loss(model, inputs, *args, **options) * 2


def made_of(kind, folder, strategy, losses=None, *, model=None, **options):
    torch.manual_seed(2)
    data = [{"x": torch.randn(4), "labels": index % 2} for index in range(32)]
    options = {"remove_unused_columns": False, "label_names": ["labels"], **options}
    args = text.arguments(folder, **options)
    return kind(model or Net(), args, None, data, None, strategy=strategy, losses=losses)


@pytest.mark.parametrize("kind", [Before, Behind, Inside])
@pytest.mark.parametrize("strategy", UNWEIGHED, ids=lambda each: each.name)
def test_one_s_own_loss_gets_the_collator_s_keys_and_losses_are_recorded(tmp_path, kind, strategy):
    losses = None if strategy.needs is None else entropies
    made = made_of(kind, tmp_path, strategy, losses, max_steps=12, learning_rate=0.0)
    made.train()
    made.evaluate(made.train_dataset[:4])
    assert made.seen == [["labels", "x"]] * 13
    if strategy.needs is not None and strategy.needs.recordings:
        found = made.selective_loader.ledger.recorded.observe().scores[0]
        batch = transformers.default_data_collator(made.train_dataset)
        assert found.tolist() == pytest.approx(entropies(Net()(batch["x"]), batch).tolist())


@pytest.mark.parametrize("kind", [Before, Behind, Inside, Adding])
def test_one_s_own_loss_cannot_be_weighed_and_losses_to_record_are_asked_for(tmp_path, kind):
    name = kind.__name__ if kind in (Inside, Adding) else "Weighted"
    for losses in (None, entropies):
        with pytest.raises(sb.ConfigurationError, match=rf"({name}).compute_loss.*pass losses="):
            made_of(kind, tmp_path, sb.infobatch(), losses)
    with pytest.raises(sb.ConfigurationError, match=r"compute_loss.*one per row.*Pass losses="):
        made_of(kind, tmp_path, sb.auto())


def test_losses_by_row_take_the_place_of_one_s_own_loss(tmp_path):
    """InfoBatch's weights are 1 in its first epoch, so that the loss is their mean."""
    options = {"max_steps": 8, "optim": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0}
    ended = [
        made_of(SelectiveTrainer, tmp_path, sb.infobatch(), entropies, **options),
        made_of(Inside, tmp_path, sb.traditional(), **options),
    ]
    for made in ended:
        made.train()
    torch.testing.assert_close(*map(text.weights, ended))


def test_a_training_step_of_one_s_own_that_leaves_weights_out_is_refused(tmp_path):
    class Stepping(SelectiveTrainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = entropies(model(inputs["x"]), inputs).mean()
            loss.backward()
            return loss.detach()

    made = made_of(Stepping, tmp_path, sb.kath18(2, measure="loss"), entropies)
    words = r"kath18.*without the weights.*super\(\)\.training_step"
    with pytest.raises(sb.ConfigurationError, match=words):
        made.train()
    assert torch.equal(made.model.layer.weight, Net().layer.weight)


class WeightedBertForSequenceClassification(transformers.BertForSequenceClassification):
    def forward(self, input_ids, attention_mask, labels=None):
        outputs = super().forward(input_ids, attention_mask)
        if labels is not None:
            weights = torch.tensor([1.0, 5.0, 1.0, 1.0, 1.0])
            outputs.loss = functional.cross_entropy(outputs.logits, labels, weights)
        return outputs


def weighted():
    return WeightedBertForSequenceClassification(text.classifier().config)


def doubled():
    model = text.speaker()
    usual = model.loss_function
    model.loss_function = lambda *args, **options: 2 * usual(*args, **options)
    return model


@pytest.mark.parametrize(("make", "data"), [(weighted, text.classified), (doubled, text.spoken)])
def test_a_model_s_own_loss_that_is_not_the_usual_one_is_not_weighed(tmp_path, make, data):
    made = text.trainer(tmp_path, sb.infobatch(), model=make(), data=data()[::9])
    before = text.weights(made)
    with pytest.raises(sb.LossError, match=r"another loss than usual.*Pass losses="):
        made.train()
    assert torch.equal(before, text.weights(made))


def test_label_smoothing_is_not_left_out_silently(tmp_path):
    options = {"options": {"losses": entropies}, "label_smoothing_factor": 0.1}
    with pytest.raises(sb.ConfigurationError, match=r"infobatch.*label_smoothing_factor.*losses="):
        text.trainer(tmp_path, sb.infobatch(), **options)
    text.trainer(tmp_path, sb.recorded_sb(1 / 2), **options)


def test_a_score_that_needs_predictions_names_what_the_trainer_can_score_by(tmp_path):
    for options in ({}, {"losses": entropies}):
        speaks = {"model": text.speaker(), "data": text.spoken(32), "options": options}
        with pytest.raises(sb.ConfigurationError, match=r"kath18.*measure='loss'"):
            text.trainer(tmp_path, sb.kath18(2), **speaks).train()
