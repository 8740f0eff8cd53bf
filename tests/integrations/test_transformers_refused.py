"""What the Trainer's options and selection cannot do together is said before training starts."""

import pytest
import torch

pytest.importorskip("transformers")

import fixture_text as text
import transformers

import selective_backprop as sb


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"auto_find_batch_size": True}, "smaller batches"),
        ({"train_sampling_strategy": "batch_rebalance"}, "selection regroups"),
        ({"enable_jit_checkpoint": True}, "without telling callbacks"),
    ],
)
def test_an_option_that_selection_cannot_honour_is_refused_with_its_reason(
    tmp_path, options, reason
):
    with pytest.raises(sb.ConfigurationError, match=reason):
        text.trainer(tmp_path, text.selective(), **options)


def test_the_loss_of_a_router_cannot_be_weighted(tmp_path):
    config = {"output_router_logits": True, "bos_token_id": None, "eos_token_id": None}
    sizes = {"vocab_size": 128, "intermediate_size": 16, "num_local_experts": 2}
    heads = {"num_key_value_heads": 1}
    mixtral = transformers.MixtralConfig(**text.SIZE, **sizes, **heads, **config)
    model = transformers.MixtralForCausalLM(mixtral)
    with pytest.raises(sb.ConfigurationError, match=r"infobatch weighs .*mixture of experts"):
        text.trainer(tmp_path, sb.infobatch(), model=model)
    text.trainer(tmp_path, sb.recorded_sb(1 / 2), model=model)


def test_a_loss_that_is_one_number_needs_one_per_row_beside_it(tmp_path):
    def theirs(outputs, labels, num_items_in_batch=None):
        return torch.nn.functional.cross_entropy(outputs.logits, labels)

    def rows(outputs, batch):
        return torch.nn.functional.cross_entropy(outputs.logits, batch["labels"], reduction="none")

    options = {"compute_loss_func": theirs}
    with pytest.raises(sb.ConfigurationError, match=r"one per row.*Pass losses="):
        text.trainer(tmp_path, text.selective(), options=options)
    with pytest.raises(sb.ConfigurationError, match="weighs the rows"):
        text.trainer(tmp_path, sb.infobatch(), options=options | {"losses": rows})
    made = text.trainer(
        tmp_path, text.selective(), options=options | {"losses": rows}, num_train_epochs=1
    )
    made.train()
    assert made.selective_loader.stats.scored == 48
    text.trainer(tmp_path, sb.random_backprop(1 / 2), options=options)


def test_a_regression_head_is_refused_by_what_reads_confidence(tmp_path):
    for options in ({"num_labels": 1}, {"num_labels": 2, "problem_type": "regression"}):
        model = text.classifier(**options)
        with pytest.raises(sb.ConfigurationError, match="regression head, is no cross-entropy"):
            text.trainer(tmp_path, sb.auto(), model=model)
        text.trainer(tmp_path, sb.recorded_sb(1 / 2), model=model)
        losses = {"losses": lambda outputs, batch: outputs.logits[:, 0]}
        text.trainer(tmp_path, sb.auto(), model=model, options=losses)


def test_a_loss_of_ones_own_that_is_no_cross_entropy_is_refused_at_the_first_batch(tmp_path):
    def squared(outputs, batch):
        return (outputs.logits[:, 0] - batch["labels"]) ** 2

    def opposite(outputs, batch):
        return -outputs.logits.softmax(1)[:, 0]

    numbers = [row | {"labels": float(len(row["input_ids"]))} for row in text.classified(48)]
    for losses, data, named in (
        (squared, numbers, "targets from [0-9]+ to"),
        (opposite, None, "losses as low as -0"),
    ):
        model = text.classifier(num_labels=1 if data else 2, problem_type=None)
        made = text.trainer(tmp_path, sb.auto(), model=model, data=data, options={"losses": losses})
        before = text.weights(made)
        with pytest.raises(sb.LossError, match=named + ".*recorded_sb"):
            made.train()
        assert torch.equal(text.weights(made), before)
