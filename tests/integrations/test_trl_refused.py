"""What cannot be selected in packed rows is refused before training, with what to do instead."""

import pytest
import torch

pytest.importorskip("trl")

import fixture_sft as sft
import fixture_text as text
import transformers

import selective_backprop as sb


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


def test_lengths_that_do_not_cover_a_row_are_refused(tmp_path):
    made = sft.trainer(tmp_path, text.selective(), packing=True)
    rows = made.train_dataset.to_list()
    rows[3]["seq_lengths"][-1] += 2
    made.train_dataset = type(made.train_dataset).from_list(rows)
    wrong = sum(rows[3]["seq_lengths"])
    with pytest.raises(sb.BatchError, match=rf"row 3 have {wrong} tokens.* has {wrong - 2}"):
        made.train()


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


@pytest.mark.parametrize("loss", ["nll", "dft"])
def test_weights_need_a_loss_that_is_known_by_row(tmp_path, loss):
    if loss == "dft":
        with pytest.raises(sb.ConfigurationError, match=r"infobatch weighs.*loss_type='dft'"):
            sft.trainer(tmp_path, sb.infobatch(), loss_type=loss)
    made = sft.trainer(tmp_path, text.selective(), loss_type=loss, max_steps=2, packing=True)
    before = text.weights(made).clone()
    made.train()
    assert not torch.equal(before, text.weights(made))
