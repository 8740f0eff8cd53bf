"""Leave rows whose gradient is exactly zero out of the training loop's batches."""

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches import structure
from selective_backprop._batches.serialization import on_device, seal, unseal
from selective_backprop._batches.structure import Layout, join_rows, list_tensors
from selective_backprop._core.errors import BatchError, LossError
from selective_backprop._core.options import check_pad, check_paths, check_whole
from selective_backprop._core.saved_state import Saved
from selective_backprop._distributed.group import find_ranks
from selective_backprop._pipeline.rows import BufferState, Rows, Shape
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Selection
from selective_backprop.selectors import Everything


class NonzeroRows:
    """Remove from each batch the rows whose gradient is exactly zero.

    A row's gradient is zero, for example, if its advantage is 0 (as in a GRPO group with equal
    rewards), its hinge loss is 0, none of its tokens counts, or PPO clips all of its tokens. With
    each batch you pass numbers, such as advantages. A row is a zero row if all its numbers are 0.

    By default, you get each batch without its zero rows, and a `selection`. The gradient of
    `(selection.weights * losses).mean()` is that of the whole batch's mean loss, up to rounding,
    and the values are equal, too, if zero rows have a loss of 0. If all rows are zero, one is
    kept, so that your optimiser takes a step, with a gradient of zero, on every rank.

    With `backfill`, rows that are not zero wait until they fill a batch, so you take fewer steps.
    A rank gets a batch only when every rank has one, so all ranks must call it equally often.

    Even without `backfill`, two things differ from training on whole batches: BatchNorm in training
    mode sees fewer rows, and dropout draws other masks. If rows also have a second loss, such as a
    KL penalty or the router loss of a mixture of experts, their gradients are not zero: keep them.

    Args:
        backfill: number of rows of a training batch, at least 1; None returns each batch at once.
        whole: paths of parts of a batch that have no rows, as for `SelectiveLoader`.
        pad: paddings as for `SelectiveLoader`, if `backfill` joins tensors of different widths.
    """

    def __init__(
        self,
        backfill: int | None = None,
        *,
        whole: Collection[str] = (),
        pad: Mapping[str, float] | None = None,
    ) -> None:
        size = check_whole("backfill", backfill, optional=True)
        self._layout, self._buffer = Layout(check_paths("whole", whole), check_pad(pad)), None
        self._knows_layout = False
        self._loaded = False  # the waiting rows may be on another device than the batches
        if size is not None:
            self._ranks = find_ranks()
            selector = Everything().start(Context(size, None))
            self._buffer = SelectionBuffer(selector, Shape(size, None), layout=self._layout)

    def __call__(self, batch: Any, values: Tensor) -> list[tuple[Any, Selection]]:
        """Return the batches to train on now, without rows that are zero.

        On CUDA, the CPU waits for the GPU, because it must know the number of rows.

        Args:
            batch: tensors, arrays or lists of one row per example, in any containers: data, and no
                results of the model, because copies of rows carry no gradients.
            values: numbers or Booleans, `[row]` or `[row, ...]`, such as advantages, losses, or a
                mask of the tokens that count. A row is zero if all its values are exactly 0.
                Advantages of equal rewards may differ from 0 by rounding, such as 1e-9: pass
                `informative(rewards).flatten()` instead.

        Returns:
            Pairs of a batch and its `Selection`, which holds each row's weight and its place in the
            batch that it came from: one pair, or with `backfill` one for each full batch, so often
            none, and all weights are 1. Other batches are a `BatchError`, values a `LossError`.
        """
        count = structure.count_rows(batch, self._layout)
        if not self._knows_layout:
            structure.check_layout(batch, self._layout)
            self._knows_layout = True
        if any(tensor.requires_grad for tensor in list_tensors(batch)):
            raise BatchError(
                "the batch holds tensors that require gradients, but copies of rows carry none. "
                "Pass the data, and run the model on the rows that are returned"
            )
        if not isinstance(values, Tensor) or not values.ndim or len(values) != count:
            found = f"of shape {tuple(values.shape)}" if isinstance(values, Tensor) else "no tensor"
            raise LossError(
                f"values are {found} for a batch of {count} rows: pass a tensor with one number, "
                "or one row of numbers, for each row of the batch"
            )
        nonzero = values.detach() != 0
        rows = (nonzero.flatten(1).any(1) if nonzero.ndim > 1 else nonzero).nonzero().flatten()
        if self._buffer is not None:
            return self._fill_up(self._buffer, batch, rows)
        if not len(rows):
            rows = rows.new_zeros(min(count, 1))  # all gradients are zero, so any row will do
        taken = batch if len(rows) == count else join_rows([batch], self._layout, [rows])
        return [_weighed(taken, rows, len(rows) / max(count, 1))]

    def _fill_up(self, buffer: SelectionBuffer, batch: Any, rows: Tensor) -> list[Any]:
        devices = {tensor.device for tensor in list_tensors(batch)} if self._loaded else ()
        if len(devices) == 1:
            buffer.state = on_device(buffer.state, *devices)
        self._loaded = False
        if len(rows):
            # Always copies: the loop may write its next rows into the tensors of this batch.
            waits = join_rows([batch], self._layout, [rows])
            buffer.adopt(Rows(waits, len(rows), rows))
        ready = buffer.state.rows
        if self._ranks.size > 1:
            waiting = torch.tensor([ready])
            ready = int(self._ranks.gather(waiting, "tells how many rows wait").min())
        batches = islice(buffer.release(), ready // (buffer.shape.batch_size or 1))
        return [_weighed(each.batch, each.indices, 1.0) for each in batches]

    def state_dict(self) -> dict[str, Any]:
        """Return the rows that wait for a full batch; an empty dict without `backfill`."""
        return {} if self._buffer is None else {"buffer": seal(self._buffer.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the `state_dict()` of an object built with the same arguments.

        If the tensors of the next batch are all on one device, the waiting rows are moved there. A
        damaged state, or one of other arguments, is a `ConfigurationError` and changes nothing.
        """
        if self._buffer is None:
            Saved(state).fields()
            return
        (buffer,) = Saved(state).fields("buffer")
        self._buffer.state = unseal(buffer, BufferState)
        self._loaded = True


def _weighed(batch: Any, rows: Tensor | None, weight: float) -> tuple[Any, Selection]:
    assert rows is not None  # the place of each row is known
    weights = torch.full((len(rows),), weight, device=rows.device)
    return batch, Selection(rows, weights)
