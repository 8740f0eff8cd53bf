"""Rows whose gradient is exactly zero are left out of batches that the loop owns."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.serialization import pack_batch, unpacked
from selective_backprop._batches.structure import (
    Layout,
    check_layout,
    count_rows,
    join_rows,
    list_leaves,
)
from selective_backprop._core.errors import BatchError, ConfigurationError, LossError
from selective_backprop._core.options import check_pad, check_paths, check_whole
from selective_backprop._core.saved_state import Saved
from selective_backprop._distributed.group import Alone, find_ranks
from selective_backprop._pipeline.rows import BufferState, Leftovers, Rows, Shape
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Selection
from selective_backprop._sampling.schedule import Phase
from selective_backprop.selectors import Nonzero


class NonzeroRows:
    """Leave out of each batch the rows whose gradient is exactly zero.

    Such are rows of advantage 0, as all rows of a GRPO group with equal rewards; rows of which no
    token counts; rows whose hinge loss is 0; and rows that PPO clips at every token. The loop says
    which they are, by any numbers that are 0 in them.

    By default each batch loses its zero rows, and `(selection.weights * losses).mean()` is still
    the mean over all of its rows: loss and gradient equal the whole batch's, to rounding. If
    all rows are zero, one of them is kept. Its gradients are zeros, so momentum and weight decay
    do what they do in training without selection, and under DDP each rank takes every step.

    With `backfill`, rows wait until there are so many of them: steps are fewer, each on a full
    batch, and its mean is over its own rows.

    Nothing but the gradient is the same: BatchNorm in training sees fewer rows, and dropout draws
    other masks. A row that has another loss as well, such as a KL penalty or the loss of a mixture
    of experts' router, is not zero.

    Args:
        backfill: rows of each batch that is trained on, at least 1; None for each batch without
            its zero rows. Refused on several ranks, whose batches would fill up at different
            times.
        refills: with `backfill`, batches after which those rows that wait are trained on though
            they are fewer, at least 1: a limit of what is generated for one training batch. None
            waits for as many as it takes.
        whole: paths in the batch that belong to it as a whole, not row by row.
        pad: right-padding value by path, for tensors of varying trailing length that `backfill`
            joins.

    Raises:
        ConfigurationError: if an option is out of its range, `backfill` meets several ranks, or
            `refills` has no `backfill` to limit.

    Example:
        >>> import torch, selective_backprop as sb
        >>> nonzero = sb.NonzeroRows()
        >>> weight = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> inputs, advantages = torch.eye(4, 2), torch.tensor([0.5, -1.0, 0.0, 0.0])
        >>> for (inputs, advantages), selection in nonzero((inputs, advantages), advantages):
        ...     losses = -advantages * (inputs @ weight)
        ...     (selection.weights * losses).mean().backward()
        >>> len(losses), weight.grad.tolist()
        (2, [-0.125, 0.25])
    """

    def __init__(
        self,
        backfill: int | None = None,
        *,
        refills: int | None = None,
        whole: Collection[str] = (),
        pad: Mapping[str, float] | None = None,
    ) -> None:
        size = None if backfill is None else int(check_whole("backfill", backfill))
        self._refills, self._came = check_whole("refills", refills, optional=True), 0
        if self._refills is not None and size is None:
            raise ConfigurationError(f"refills={refills} limits backfill, which is None")
        self._layout, self._buffer = Layout(check_paths("whole", whole), check_pad(pad)), None
        self._knows_layout = False
        if size is None:
            return
        if not isinstance(find_ranks(), Alone):
            raise ConfigurationError(
                f"backfill={size} on several ranks: their batches would fill up at different "
                "times, and ranks that step would wait for the others; pass backfill=None"
            )
        self._buffer = SelectionBuffer(
            Nonzero().start(Context(size, None)),
            Shape(size, None),
            history=None,
            layout=self._layout,
            seed=(0,),
        )

    def __call__(self, batch: Any, values: Tensor) -> list[tuple[Any, Selection]]:
        """Return the batches to train on now, without rows that are zero.

        On CUDA the host waits for the device, since the number of rows is a shape.

        Args:
            batch: tensors, arrays or lists of one row per example, in any containers; data, and
                no results of the model, since rows are copied without their gradients.
            values: numbers or Booleans, `[row]` or `[row, ...]`: a row is zero if all its values
                are. Advantages, a mask of the tokens that count, or losses. Taken as they are: an
                advantage of 1e-9 is not 0, so tell groups of equal rewards by
                `rewards != rewards[:, :1]` where means are rounded.

        Returns:
            Pairs of a batch and its `Selection`: the rows' places in the batches they came from,
            and their weights. One pair by default; with `backfill` as many as are full, often
            none, and all weights are 1.

        Raises:
            BatchError: if the batch's rows cannot be told apart, or hold gradients.
            LossError: if there is not one value, or one row of values, for each row.
        """
        count = count_rows(batch, self._layout)
        if not self._knows_layout:
            check_layout(batch, self._layout)
            self._knows_layout = True
        if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in list_leaves(batch)):
            raise BatchError(
                "the batch holds tensors that require gradients, and rows are copied without; pass "
                "the data, and run the model on the rows that come back"
            )
        if not isinstance(values, Tensor) or not values.ndim or len(values) != count:
            of_shape = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else "no tensor"
            raise LossError(
                f"values of {of_shape} for a batch of {count} rows: a tensor with one number, or "
                "one row of numbers, for each is needed"
            )
        nonzero = (values.detach() != 0).reshape(count, -1).any(1)
        if self._buffer is not None:
            places = torch.arange(count, device=nonzero.device)
            candidates = Rows(batch, count, places, scores=nonzero.float())
            full = [*self._buffer.route(Phase.SELECT, candidates)]
            self._came = 0 if full else self._came + 1
            if self._refills is not None and self._came >= self._refills:
                full = [*self._buffer.close(Leftovers.FLUSH)]
                self._came = 0
            return [_weighed(rows.batch, rows.indices, 1.0) for rows in full]
        rows = nonzero.nonzero().flatten()
        if not len(rows):
            rows = rows.new_zeros(min(count, 1))  # its gradient is zero: any row will do
        if len(rows) < count:
            batch = join_rows([batch], self._layout, [rows])
        return [_weighed(batch, rows, len(rows) / max(count, 1))]

    def state_dict(self) -> dict[str, Any]:
        """Return the rows that wait for a full batch; empty without `backfill`."""
        if self._buffer is None:
            return {}
        return {"buffer": pack_batch(self._buffer.state), "came": self._came}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()` of one that was built alike.

        Raises:
            ConfigurationError: if the state is damaged, or of one with `backfill` where this has
                none; nothing has changed then.
        """
        if self._buffer is None:
            Saved(state).fields()
            return
        buffer, came = Saved(state).fields("buffer", "came")
        self._buffer.state, self._came = unpacked(buffer, BufferState), came.whole()


def _weighed(batch: Any, rows: Tensor | None, weight: float) -> tuple[Any, Selection]:
    assert rows is not None  # places are known of all
    weights = torch.full((len(rows),), weight, device=rows.device)
    return batch, Selection(rows, weights)
