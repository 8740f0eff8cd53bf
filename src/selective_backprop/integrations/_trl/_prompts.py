"""Which prompts are answered next: one pass after the other, for updates and for their refills."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from selective_backprop._core.saved_state import Saved
from selective_backprop._step.resting_prompts import RestingPrompts


class PromptStream(Sampler[int]):
    """Yield prompts as TRL's trainers expect them, and hand out more in between.

    Each pass of `resting` follows the one before. An epoch has as many batches as TRL's own, so
    that the number of steps is known; with refills, it takes more than a pass.

    Args:
        resting: draws passes; alike on all ranks.
        prompts: how many there are.
        batch: prompts that are answered at once.
        answers: times that each prompt of a batch comes in a row.
        repeats: times that each batch comes.
    """

    def __init__(
        self, resting: RestingPrompts, prompts: int, batch: int, answers: int, repeats: int
    ) -> None:
        self.resting, self._prompts = resting, prompts
        self._batch, self._answers, self._repeats = batch, answers, repeats
        self._left: list[int] = []  # of the pass
        self._drawn: list[int] = []  # in the epoch, for its batches
        self._again: list[int] = []  # of these, what an epoch that was interrupted begins with

    def __len__(self) -> int:
        batches = self._prompts // self._batch
        return batches * self._batch * self._answers * self._repeats

    def __iter__(self) -> Iterator[int]:
        """Yield an epoch's prompts; each batch is drawn when it is asked for."""
        self._drawn, self._again = self._again, []
        for start in range(0, self._prompts // self._batch * self._batch, self._batch):
            if start == len(self._drawn):
                self._drawn += self.take(self._batch)
            chunk = self._drawn[start : start + self._batch]
            for _ in range(self._repeats):
                for prompt in chunk:
                    yield from [prompt] * self._answers

    def take(self, count: int) -> list[int]:
        """Return the next prompts, of as many passes as it takes."""
        while len(self._left) < count:
            self._left += self.resting
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def state_dict(self, *, between_epochs: bool) -> dict[str, Any]:
        """Return what rests, what is left of the pass, and what the epoch's batches were so far."""
        return {
            "resting": self.resting.state_dict(),
            "left": torch.tensor(self._left, dtype=torch.int64),
            "drawn": torch.tensor([] if between_epochs else self._drawn, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; the next epoch begins with the batches that it had.

        Raises:
            ConfigurationError: if the state is damaged, or of other prompts; nothing has changed
                then.
        """
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
