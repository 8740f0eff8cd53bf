"""A small language model, and English prose that comes with scikit-learn."""

from typing import Any

import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.utils.data import Dataset

MASKED = -100
BY_FREQUENCY = 3.2  # the mean loss of who knows how frequent each letter is, and no more


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


def token_losses(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(*outputs(model, batch), reduction="none")


def make_model(lines: Lines) -> nn.Module:
    torch.manual_seed(0)
    return Letters(len(lines.numbers) + 1)


def mean_loss(model: nn.Module, lines: Lines) -> float:
    with torch.no_grad():
        batch = pad([lines[index] for index in range(64)])
        return nn.functional.cross_entropy(*outputs(model, batch)).item()
