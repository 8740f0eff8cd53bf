"""Language models: whole examples selected by the mean loss of the tokens that count."""

from typing import Any

import fixture_tasks as tasks
import pytest
import reference
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb

MASKED = -100
ALL = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)


class Lines(Dataset[dict[str, Tensor]]):
    """Lines of English prose, letter by letter; the first letter is asked for nowhere.

    Example `i` says its number, and has as many letters as its line.
    """

    def __init__(self) -> None:
        makers = (datasets.load_iris, datasets.load_wine, datasets.load_digits)
        lines = "\n".join(make().DESCR for make in makers).splitlines()
        lines = [line.strip().lower() for line in lines if len(line.strip()) > 8]
        self.lines = list(dict.fromkeys(lines))  # of equal losses either may be chosen
        letters = sorted(set("".join(self.lines)))
        self.numbers = {letter: number for number, letter in enumerate(letters, 1)}

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        letters = torch.tensor([self.numbers[letter] for letter in self.lines[index]])
        return {"input_ids": letters[:-1], "labels": letters[1:]}


def pad(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """One batch, as long as its longest line; what pads is masked in the labels."""
    return {
        name: nn.utils.rnn.pad_sequence(
            [example[name] for example in examples], batch_first=True, padding_value=value
        )
        for name, value in (("input_ids", 0), ("labels", MASKED))
    }


class Letters(nn.Module):
    """Predicts the next letter from the last three."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(letters, 16)
        self.mix = nn.Conv1d(16, 64, 3)
        self.head = nn.Linear(64, letters)

    def forward(self, input_ids: Tensor) -> Tensor:
        embedded = nn.functional.pad(self.embed(input_ids).transpose(1, 2), (2, 0))
        return self.head(self.mix(embedded).relu().transpose(1, 2))  # [row, token, letter]


def outputs(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    return model(batch["input_ids"]).transpose(1, 2), batch["labels"]


def mean_over_tokens(output: list[list[float]], target: list[int]) -> float:
    tokens = list(zip(*output, strict=True))
    return reference.token_cross_entropy(tokens, target, ignored=MASKED)


def make_task() -> tasks.Task:
    torch.manual_seed(0)
    lines = Lines()
    return tasks.Task(
        lines,
        Letters(len(lines.numbers) + 1),
        nn.CrossEntropyLoss(),
        mean_over_tokens,
        outputs,
        {"outputs": outputs},
        pad,
    )


def mean_loss(task: tasks.Task) -> float:
    batch = pad([task.data[index] for index in range(64)])
    with torch.no_grad():
        return nn.functional.cross_entropy(*outputs(task.model, batch)).item()


@pytest.mark.parametrize("stepwise", [False, True])
def test_a_language_model_learns_from_lines_whose_letters_are_hardest(stepwise: bool) -> None:
    task = make_task()
    if stepwise:
        for _ in range(6):
            tasks.train_with_step(task, steps=100)
    else:
        tasks.train_with_loader(task, epochs=6)
    assert mean_loss(task) < 2.8  # 3.2 by how frequent letters are


def test_lines_of_several_batches_are_padded_and_what_pads_is_not_trained_on() -> None:
    task = make_task()
    loader = DataLoader(task.data, 8, shuffle=True, collate_fn=pad)
    with pytest.raises(sb.BatchError, match="pad={'input_ids': value}"):
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


def test_how_much_of_a_line_is_masked_does_not_count() -> None:
    model = Letters(9)
    step = sb.SelectiveStep(model, nn.CrossEntropyLoss(), sb.traditional(), outputs=outputs)
    line = torch.tensor([5, 7, 3, 8, 2, 1, 4, 6])
    masked = line.masked_fill(torch.arange(8) > 2, MASKED)
    examples = [(line[:3], line[:3]), (line, masked), (line, line)]
    batch = pad([{"input_ids": inputs, "labels": labels} for inputs, labels in examples])
    short, hidden, whole = step(batch).losses.tolist()
    assert short == pytest.approx(hidden)
    assert short != pytest.approx(whole)


def test_a_line_without_a_letter_that_counts_is_chosen_last() -> None:
    task = make_task()
    batch = pad([task.data[index] for index in range(8)])
    batch["labels"][[1, 2, 5]] = MASKED
    top = sb.Strategy("top", sb.Forward(), sb.Top(rate=5 / 8))
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
