"""The share of wrong labels, read off the predictions of a model that has not trained on them.

The rule is this project's own. In the first pass each prediction is out of sample. A label is
*improbable* if the model gives it a probability below a limit. A calibrated model expects some of
its labels to be improbable; of labels drawn at random, as wrong ones are, many more would be. Where
the labels seen lie between the two says how many are drawn at random:

    share = (seen - expected) / (random - expected)
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._core.saved_state import FINITE, Saved
from selective_backprop._core.types import Float, Float64

IMPROBABLE = 0.01  # a higher limit counts hard examples, a lower one leaves few to count
LEAST_WRONG = 0.025  # where all labels are right, up to 0.02 was seen
BLOCKS = 256  # of equally many batches, so that the second half of a pass is known to 1/256
LEAST_ROWS = 200  # of fewer, a share says nothing
LEAST_RANDOM = 0.01  # if fewer of random labels would be improbable, the model knows too little
SHAPE = (3, 3)  # of what `_moments` returns
_TWO_SIDED = 1.96  # standard errors of a 95 % interval


class WrongShare(NamedTuple):
    """The estimated share of labels that were drawn at random, with a 95 % interval.

    Attributes:
        share: the estimate, in [0, 1].
        half_width: half the width of the interval.
    """

    share: float
    half_width: float

    @property
    def is_clear(self) -> bool:
        """Whether the share is high enough to be reported, and its interval excludes 0."""
        return self.share >= max(LEAST_WRONG, self.half_width)

    def __str__(self) -> str:
        return f"{self.share:.0%} ± {self.half_width:.1%} of the labels look wrong"


class LabelNoise:
    """Reads the share of wrong labels in the second half of the first pass.

    In the first half the model is too young. It cannot see wrong labels that the model finds
    plausible, such as those of classes that look alike. In a long pass it looks at no more than 256
    batches. The host does not wait before the pass ends.
    """

    def __init__(self) -> None:
        self._sums: Float64[Tensor, "block moment moment"] | None = None
        self._every = 1  # batches of a block
        self._batches = 0
        self.totals: Float64[Tensor, "moment moment"] | None = (
            None  # of the second half, once it is over
        )

    @property
    def over(self) -> bool:
        """Whether the pass is over."""
        return self.totals is not None

    def observe(self, outputs: Any, targets: Any, smoothing: float = 0.0) -> None:
        """Take in the predictions of a batch, before the model has trained on it.

        Args:
            outputs: logits, `[row, class]`, or of yes-or-no targets `[row]`; others are left out.
            targets: class indices, `[row]`, negative ones for rows to ignore; or 0 and 1, floats.
            smoothing: by how much the loss smooths labels, in [0, 1), which predictions follow.
        """
        found = probabilities(outputs, targets)
        if found is None or self.over:
            return
        if self._sums is None:
            self._sums = found[0].new_zeros((BLOCKS, *SHAPE), dtype=torch.float64)
        if self._batches == BLOCKS * self._every:
            halved = self._sums.unflatten(0, (-1, 2)).sum(1)
            self._sums = torch.cat([halved, torch.zeros_like(halved)])
            self._every *= 2
        block, place = divmod(self._batches, self._every)
        if not place:  # the first batch of a block stands for all of it
            self._sums[block] = _moments(*found, smoothing)
        self._batches += 1

    def own(self) -> Float64[Tensor, "moment moment"]:
        """Return the sums over the second half of what was observed here, on the host."""
        if self._sums is None:
            return torch.zeros(SHAPE, dtype=torch.float64)
        blocks = -(-self._batches // self._every)
        return self._sums[blocks // 2 : blocks].sum(0).cpu()

    def end(self, totals: Float64[Tensor, "moment moment"]) -> None:
        """End the pass, with the sums of all ranks."""
        self.totals, self._sums = totals, None

    @property
    def found(self) -> WrongShare | None:
        """What was read; None before the pass is over, and where nothing could be read."""
        if self.totals is None:
            return None
        (rows, above, room), (_, above2, both), (*_, room2) = self.totals.tolist()
        if rows < LEAST_ROWS or room < LEAST_RANDOM * rows:
            return None
        share = above / room
        # Of a ratio of sums, by the spread of what its rows leave over.
        spread = max(0.0, above2 - 2 * share * both + share**2 * room2)
        return WrongShare(min(1.0, max(0.0, share)), _TWO_SIDED * math.sqrt(spread) / room)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to continue later."""
        sums, totals = self._sums, self.totals
        return {
            "sums": None if sums is None else sums.clone(),
            "every": self._every,
            "batches": self._batches,
            "totals": None if totals is None else totals.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; a state that is refused changes nothing."""
        sums, every, batches, totals = Saved(state).fields("sums", "every", "batches", "totals")
        found, ended = (
            each.maybe(lambda sums, shape=shape: _finite(sums, shape))
            for each, shape in ((sums, (BLOCKS, *SHAPE)), (totals, SHAPE))
        )
        length = every.whole(1)
        self._batches = batches.whole(0, BLOCKS * length)
        self._every = length
        self._sums = None if found is None else found.clone()
        self.totals = None if ended is None else ended.clone()


def _finite(sums: Saved, shape: tuple[int, ...]) -> Tensor:
    return sums.tensor(torch.float64, shape=shape, least=-FINITE, most=FINITE)


def _moments(
    p: Float[Tensor, "row class"], labels: Tensor, smoothing: float
) -> Float64[Tensor, "moment moment"]:
    """Return the sums over rows of the products of 1, `above` and `room`, each with each.

    `above` is by how much a label is oftener improbable than the model expects, and `room` by how
    much one that is drawn at random would be.
    """
    classes, total = p.shape[1], 1.0
    if smoothing:  # what spreads so much of a model's probability evenly is taken out of it
        p = (p - smoothing / classes).clamp(min=0.0)
        total = p.sum(1, keepdim=True)
    low = (p < IMPROBABLE * total).to(p.dtype)
    own = low.gather(1, labels.clamp(0, classes - 1)[:, None])[:, 0]
    expected = ((p * low) / total).sum(1)
    above, room = own - expected, low.sum(1) / classes - expected
    counts = (labels >= 0) & (labels < classes)
    columns = torch.stack([torch.ones_like(above), above, room]) * counts
    # A model that diverged has no probabilities, and tells nothing.
    columns = columns.double().nan_to_num()
    return columns @ columns.T


def probabilities(outputs: Any, targets: Any) -> tuple[Float[Tensor, "row class"], Tensor] | None:
    """Return the probabilities of classes and the labels; None if there are no such."""
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)) or not outputs.ndim:
        return None
    outputs, targets, rows = outputs.detach().float(), targets.detach(), len(outputs)
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        if targets.shape != (rows,) or targets.is_floating_point() or targets.is_complex():
            return None
        return outputs.softmax(1), targets.long()
    if outputs.numel() != rows or targets.numel() != rows or not targets.is_floating_point():
        return None
    logits = torch.stack([torch.zeros_like(outputs), outputs], -1).reshape(rows, 2)
    return logits.softmax(1), (targets.reshape(rows) > 0.5).long()
