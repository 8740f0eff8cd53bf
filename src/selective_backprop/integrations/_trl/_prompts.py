"""Draw the prompts to answer next, pass after pass, for updates and for refills."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from selective_backprop import RestingPrompts
from selective_backprop.integrations._kit import Saved


class PromptStream(Sampler[int]):
    """Yield prompts as TRL's trainers expect them, and hand out more for refills.

    The passes that `resting` draws follow one another, in the same order on all ranks. An epoch has
    as many batches as in TRL, so the number of steps is known. With refills, an epoch uses more
    than one pass. Of `prompts`, `batch` are answered at once. Each is repeated `answers` times in a
    row, and the whole batch `repeats` times.
    """

    def __init__(
        self, resting: RestingPrompts, prompts: int, batch: int, answers: int, repeats: int
    ) -> None:
        self.resting, self._prompts = resting, prompts
        self._batch, self._answers, self._repeats = batch, answers, repeats
        self._left: list[int] = []  # prompts left in the pass
        self._drawn: list[int] = []  # prompts drawn for the batches of this epoch
        self._again: list[int] = []  # prompts that a resumed epoch begins with

    def __len__(self) -> int:
        batches = self._prompts // self._batch
        return batches * self._batch * self._answers * self._repeats

    def __iter__(self) -> Iterator[int]:
        """Yield an epoch's prompts; each batch is drawn when it is needed."""
        self._drawn, self._again = self._again, []
        for start in range(0, self._prompts // self._batch * self._batch, self._batch):
            if start == len(self._drawn):
                self._drawn += self.take(self._batch)
            chunk = self._drawn[start : start + self._batch]
            for _ in range(self._repeats):
                for prompt in chunk:
                    yield from [prompt] * self._answers

    def take(self, count: int) -> list[int]:
        """Return the next prompts, and begin new passes as needed."""
        while len(self._left) < count:
            self._left += self.resting
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def state_dict(self, *, between_epochs: bool) -> dict[str, Any]:
        """Return the state of `resting`, the rest of the pass, and the epoch's batches so far."""
        return {
            "resting": self.resting.state_dict(),
            "left": torch.tensor(self._left, dtype=torch.int64),
            "drawn": torch.tensor([] if between_epochs else self._drawn, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; the next epoch begins with the saved batches."""
        saved = Saved(state)
        resting, left, drawn = saved.fields("resting", "left", "drawn")
        rest, again = (
            each.tensor(torch.int64, shape=(None,), least=0, most=self._prompts - 1).tolist()
            for each in (left, drawn)
        )
        if len(again) % self._batch:
            raise drawn.refuse(f"batches of {self._batch} prompts")
        with resting.inside():
            self.resting.load_state_dict(resting.value)
        self._left, self._again = rest, again
