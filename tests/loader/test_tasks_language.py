"""Language models: whole examples selected by the mean loss of the tokens that count."""

from typing import Any

import fixture_tasks as tasks
import pytest
import reference
from fixture_language import (
    BY_FREQUENCY,
    MASKED,
    Lines,
    make_model,
    mean_loss,
    outputs,
    pad,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb

ALL = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)


def mean_over_tokens(output: list[list[float]], target: list[int]) -> float:
    tokens = list(zip(*output, strict=True))
    return reference.token_cross_entropy(tokens, target, ignored=MASKED)


def make_task() -> tasks.Task:
    lines = Lines()
    return tasks.Task(
        lines,
        make_model(lines),
        nn.CrossEntropyLoss(),
        mean_over_tokens,
        outputs,
        {"outputs": outputs},
        pad,
    )


@pytest.mark.parametrize("stepwise", [False, True])
def test_a_language_model_learns_from_lines_whose_letters_are_hardest(stepwise: bool) -> None:
    task = make_task()
    if stepwise:
        for _ in range(6):
            tasks.train_with_step(task, steps=100)
    else:
        tasks.train_with_loader(task, epochs=6)
    assert mean_loss(task.model, task.data) < BY_FREQUENCY - 0.4


def test_lines_of_several_batches_are_padded_and_what_pads_is_not_trained_on() -> None:
    task = make_task()
    loader = DataLoader(task.data, 8, shuffle=True, collate_fn=pad)
    with pytest.raises(sb.BatchError, match=r"pad=\{'input_ids': value\}"):
        list(sb.SelectiveLoader(loader, task.model, task.loss_fn, ALL, outputs=outputs))
    door = sb.SelectiveLoader(
        loader,
        task.model,
        task.loss_fn,
        ALL,
        outputs=outputs,
        with_selection=True,
        pad={"input_ids": 0, "labels": MASKED},
    )
    for batch, selection in door:
        for row, index in enumerate(selection.indices.tolist()):
            whole = task.data[index]
            kept = len(whole["labels"])
            assert batch["input_ids"][row, :kept].equal(whole["input_ids"])
            assert batch["labels"][row, :kept].equal(whole["labels"])
            assert (batch["input_ids"][row, kept:] == 0).all()
            assert (batch["labels"][row, kept:] == MASKED).all()


def test_a_line_without_a_letter_that_counts_is_chosen_last() -> None:
    task = make_task()
    batch = pad([task.data[index] for index in range(8)])
    batch["labels"][[1, 2, 5]] = MASKED
    top = sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(rate=5 / 8))
    step = sb.SelectiveStep(task.model, task.loss_fn, top, outputs=outputs)
    selected = step(batch)
    assert selected.rows.tolist() == [0, 3, 4, 6, 7]
    assert selected.loss.isfinite()


def test_losses_of_all_tokens_in_one_row_are_refused_with_what_to_write() -> None:
    task = make_task()

    def flattened(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        return nn.functional.cross_entropy(
            logits.transpose(1, 2).flatten(0, 1), labels.flatten(), reduction=reduction
        )

    loader = DataLoader([task.data[0]] * 8, 4, collate_fn=pad)
    count = len(task.data[0]["labels"])
    asked = rf"shape \({4 * count},\) for a batch of 4 .* If these are {count} tokens"
    with pytest.raises(sb.LossError, match=asked):
        next(iter(sb.SelectiveLoader(loader, task.model, flattened, ALL, outputs=outputs)))
    with pytest.raises(sb.LossError, match=asked):
        sb.SelectiveStep(task.model, flattened, ALL, outputs=outputs)(next(iter(loader)))


def test_classes_on_the_last_axis_are_refused_with_what_to_write() -> None:
    task = make_task()

    def as_they_come(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(batch["input_ids"]), batch["labels"]

    batch = pad([task.data[index] for index in range(4)])
    step = sb.SelectiveStep(task.model, task.loss_fn, ALL, outputs=as_they_come)
    with pytest.raises(RuntimeError, match="target size") as refusal:
        step(batch)
    assert "logits.movedim(-1, 1)" in refusal.value.__notes__[0]
