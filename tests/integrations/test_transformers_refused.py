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
    numbers = [row | {"labels": float(len(row["input_ids"]))} for row in text.classified(48)]
    for losses, data, named in (
        (
            lambda out, batch: (out.logits[:, 0] - batch["labels"]) ** 2,
            numbers,
            "targets from [0-9]+ to",
        ),
        (lambda out, batch: -out.logits.softmax(1)[:, 0], None, "losses as low as -0"),
    ):
        model = text.classifier(num_labels=1 if data else 2, problem_type=None)
        made = text.trainer(tmp_path, sb.auto(), model=model, data=data, options={"losses": losses})
        before = text.weights(made)
        with pytest.raises(sb.LossError, match=named + ".*recorded_sb"):
            made.train()
        assert torch.equal(text.weights(made), before)
