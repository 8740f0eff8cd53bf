"""Language models: whole examples selected by the mean loss of the tokens that count."""

from typing import Any

import pytest
import torch
from fixture_language import MASKED, Lines, make_model, outputs, pad
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb

ALL = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)
LOSS = nn.CrossEntropyLoss()


def test_lines_of_several_batches_are_padded_and_what_pads_is_not_trained_on() -> None:
    lines = Lines()
    model = make_model(lines)
    loader = DataLoader(lines, 8, shuffle=True, collate_fn=pad)
    with pytest.raises(sb.BatchError, match=r"pad=\{'input_ids': value\}"):
        list(sb.SelectiveLoader(loader, model, LOSS, ALL, outputs=outputs))
    selecting = sb.SelectiveLoader(
        loader,
        model,
        LOSS,
        ALL,
        outputs=outputs,
        with_selection=True,
        pad={"input_ids": 0, "labels": MASKED},
    )
    for batch, selection in selecting:
        for row, index in enumerate(selection.indices.tolist()):
            whole = lines[index]
            kept = len(whole["labels"])
            assert batch["input_ids"][row, :kept].equal(whole["input_ids"])
            assert batch["labels"][row, :kept].equal(whole["labels"])
            assert (batch["input_ids"][row, kept:] == 0).all()
            assert (batch["labels"][row, kept:] == MASKED).all()


def test_a_line_without_a_letter_that_counts_is_chosen_as_often_as_others() -> None:
    lines = Lines()
    model = make_model(lines)
    batch = pad([lines[index] for index in range(8)])
    batch["labels"][[1, 2, 5]] = MASKED
    top = sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(rate=5 / 8))
    step = sb.SelectiveStep(
        model, LOSS, top, outputs=outputs, generator=torch.Generator().manual_seed(0)
    )
    chosen = torch.zeros(8)
    for _ in range(200):
        selected = step(batch)
        chosen[selected.rows] += 1 / 200
        assert selected.loss.isfinite()
        assert selected.losses.min() >= 0
    assert chosen[[1, 2, 5]].tolist() == pytest.approx([5 / 8] * 3, abs=0.1)


def test_losses_of_all_tokens_in_one_row_are_refused_with_what_to_write() -> None:
    lines = Lines()
    model = make_model(lines)

    def flattened(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        return nn.functional.cross_entropy(
            logits.transpose(1, 2).flatten(0, 1), labels.flatten(), reduction=reduction
        )

    loader = DataLoader([lines[0]] * 8, 4, collate_fn=pad)
    count = len(lines[0]["labels"])
    asked = rf"shape \({4 * count},\) for a batch of 4 .* If these are {count} tokens"
    with pytest.raises(sb.LossError, match=asked):
        next(iter(sb.SelectiveLoader(loader, model, flattened, ALL, outputs=outputs)))
    with pytest.raises(sb.LossError, match=asked):
        sb.SelectiveStep(model, flattened, ALL, outputs=outputs)(next(iter(loader)))


def test_classes_on_the_last_axis_are_refused_with_what_to_write() -> None:
    lines = Lines()
    model = make_model(lines)

    def as_they_come(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(batch["input_ids"]), batch["labels"]

    batch = pad([lines[index] for index in range(4)])
    step = sb.SelectiveStep(model, LOSS, ALL, outputs=as_they_come)
    with pytest.raises(RuntimeError, match="target size") as refusal:
        step(batch)
    assert "logits.movedim(-1, 1)" in refusal.value.__notes__[0]
