"""Draw the prompts to answer, and regroup completions with a gradient into fewer micro-batches."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Sampler
from trl.trainer.utils import split_pixel_values_by_grid

from selective_backprop import BatchError, RestingPrompts, max_variance
from selective_backprop.integrations._kit import Saved
from selective_backprop.integrations._trl._checks import BY_ROWS, BY_TOKENS


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
        resting, left, drawn = Saved(state).fields("resting", "left", "drawn")
        rest, again = (
            each.tensor(torch.int64, shape=(None,), least=0, most=self._prompts - 1).tolist()
            for each in (left, drawn)
        )
        if len(again) % self._batch:
            raise drawn.refuse(f"batches of {self._batch} prompts")
        with resting.inside():
            self.resting.load_state_dict(resting.value)
        self._left, self._again = rest, again


Batch = dict[str, Any]
# What comes with images: one number for each token of prompt and completion, and all the rest.
TYPES = ("token_type_ids", "mm_token_type_ids")
IMAGES = ("pixel_", "image_", "spatial_", "num_images", "num_tiles")


def split_images(batch: Batch) -> Batch:
    """Return rollouts with a list `images`, which has all that belongs to each row's images."""
    width, split = batch["prompt_ids"].shape[1], split_pixel_values_by_grid(batch)
    batch = {name: of for name, of in split.items() if of is not None}  # TRL may drop all images
    for name in batch.keys() & TYPES:
        types = batch.pop(name)
        batch |= {f"prompt_{name}": types[:, :width], f"completion_{name}": types[:, width:]}
    parts: Batch = {name: batch.pop(name) for name in [*batch] if name.startswith(IMAGES)}
    if parts:
        values = [part.split(1) if isinstance(part, Tensor) else part for part in parts.values()]
        rows = zip(*values, strict=True)
        batch["images"] = [dict(zip(parts, row, strict=True)) for row in rows]
    return batch


def join_images(batch: Batch) -> Batch:
    """Return the inverse of `split_images`, as TRL's loss takes it."""
    joined, rows = {**batch}, batch.get("images", [{}])
    for name in rows[0]:
        values = [row[name] for row in rows]
        joined[name] = torch.cat(values) if isinstance(values[0], Tensor) else values
    for name in TYPES:
        if f"prompt_{name}" in batch:
            joined[name] = torch.cat([batch[f"{of}_{name}"] for of in ("prompt", "completion")], 1)
    return joined


def choose(rewards: Tensor, keep: int) -> Tensor:
    """Return the completions to keep, as Booleans: by `max_variance`, those with a reward first.

    Rewards are `[prompt, completion]`; NaN marks a completion without a reward.
    """
    missing = rewards.isnan()
    order = missing.byte().sort(dim=1, stable=True).indices  # those with a reward come first
    kept = torch.zeros_like(missing).scatter_(1, order[:, :keep], True)
    counts = (~missing).sum(1)
    for count in counts.unique().tolist():  # nearly always all completions have a reward
        if count >= keep:
            rows = (counts == count).nonzero()
            scored = order[rows.flatten(), :count]
            kept[rows, scored] = max_variance(rewards[rows, scored], keep)
    return kept


def own_tokens(batch: Batch) -> Tensor:
    """Return which tokens of the completions the policy generated itself, `[row, token]`."""
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def with_gradient(batch: Batch) -> Tensor:
    """Return which completions have a gradient, as Booleans, `[row]`."""
    advantages = batch["advantages"]
    if advantages.ndim == 1:
        advantages = advantages[:, None]
    return (advantages * own_tokens(batch) != 0).any(1)


def beside(advantages: Tensor, rows: Tensor) -> Tensor:
    """Return a tensor `[row]` with as many axes as the advantages, `[row]` or `[row, token]`."""
    return rows.view(-1, *[1] * (advantages.ndim - 1))


def groups_with_gradient(batch: Batch, answers: int) -> Tensor:
    """Return which prompts have an answer with a gradient, as Booleans, `[prompt]`."""
    return with_gradient(batch).view(-1, answers).any(1)


def fill(batch: Batch, more: Batch, answers: int) -> Batch:
    """Replace a batch's prompts without a gradient by those of another batch that have one.

    Both hold `answers` completions to each prompt in turn. They may differ in width.
    """
    if batch.keys() != more.keys():
        raise BatchError(
            "refills= and replay= join generation batches, of which some have images and others "
            "none. Leave these options out, or give images to all prompts."
        )
    empty = (~groups_with_gradient(batch, answers)).nonzero().flatten()
    found = groups_with_gradient(more, answers).nonzero().flatten()
    count = min(len(empty), len(found))
    both, groups = _joined([batch, more]), len(batch["advantages"]) // answers
    places = torch.arange(len(both["advantages"]), device=empty.device).view(-1, answers)
    places[empty[:count]] = places[groups + found[:count]]
    return take(both, places[:groups].flatten())


def _joined(batches: Sequence[Batch]) -> Batch:
    """Return the rows of all batches; what is the same for all rows is the first batch's.

    Tensors get the same width: prompts are padded on the left, completions on the right. Everything
    is padded with 0, also token ids: the mask of the padding is 0 too.
    """
    joined = dict(batches[0])
    for name, first in batches[0].items():
        values = [batch[name] for batch in batches]
        if isinstance(first, list):
            joined[name] = [row for value in values for row in value]
        elif first.ndim:
            widest = max(value.shape[-1] for value in values)
            lacks = [0 if first.ndim == 1 else widest - value.shape[-1] for value in values]
            sides = [(lack, 0) if name.startswith("prompt_") else (0, lack) for lack in lacks]
            joined[name] = torch.cat([*map(functional.pad, values, sides)])
    return joined


def regroup(
    batches: Sequence[Batch],
    count: int,
    least: int,
    loss: str,
    multiple: int,
    complete: Callable[[Batch], Batch],
) -> list[Batch]:
    """Move the completions with a gradient to the last micro-batches, and empty the first ones.

    A micro-batch's loss is divided by a number that depends on the micro-batch. Its `loss_scale` or
    advantages are scaled so that the losses of the update add up as before.
    Gradients are synchronised in an update's last micro-batch, so empty ones come first.

    Args:
        batches: micro-batches of one update, of as many rows each. Tensors have rows, or no axis.
        count: number of completions to keep: at least `least`, and as many as have a gradient.
        least: the number of micro-batches to fill, if fewer have room for the completions.
        loss: name of the trainer's loss, which says what it is divided by.
        multiple: the widths of completions stay multiples of this number.
        complete: adds to a batch of kept completions what is computed for kept ones only.
    """
    size, whole = len(batches[0]["advantages"]), _joined(batches)
    rows = with_gradient(whole).int().argsort(descending=True, stable=True)[:count].sort().values
    # The number of tokens in the micro-batch that each completion came from.
    tokens = [batch["own_tokens"].sum().clamp(min=1).expand(size) for batch in batches]
    whole = complete(take(whole, rows))
    tokens, filled = torch.cat(tokens)[rows], []
    parts = max(least, -(-len(rows) // size))
    for places in torch.arange(len(rows), device=rows.device).tensor_split(parts):
        batch = take(whole, places)
        if loss in BY_ROWS:
            batch["loss_scale"] = batch["loss_scale"] * (len(places) / size)
        elif loss in BY_TOKENS:
            # TRL's loss is a mean over the mask, so this gives weights to completions.
            weights = own_tokens(batch) * (tokens.max() / tokens[places])[:, None]
            scale = batch["loss_scale"] * weights.sum() / tokens.max()
            batch |= {"tool_mask": weights, "loss_scale": scale}
        filled.append(_narrow(batch, multiple))
    return [take(whole, rows[:0])] * (len(batches) - len(filled)) + filled


def take(batch: Batch, rows: Tensor) -> Batch:
    """Return some rows of a batch."""
    images = {name: [of[row] for row in rows] for name, of in batch.items() if name == "images"}
    tensors = {name: of for name, of in batch.items() if isinstance(of, Tensor)}
    return {name: of[rows] if of.ndim else of for name, of in tensors.items()} | images


def _narrow(batch: Batch, multiple: int) -> Batch:
    """Return the batch without the columns in which every completion is padding."""
    mask = batch["completion_mask"]
    longest = int((mask.any(0) * torch.arange(1, mask.shape[1] + 1, device=mask.device)).max())
    width = max(1, -(-longest // multiple)) * multiple
    return {
        name: value[:, :width]
        if getattr(value, "shape", ())[1:] == mask.shape[1:] and not name.startswith("prompt_")
        else value
        for name, value in batch.items()
    }
