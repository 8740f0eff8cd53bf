"""The share of wrong labels, estimated from predictions for examples not yet trained on.

In the first epoch, the model predicts each label before it trains on it. A label is *improbable*
if the model gives it a probability below a limit. Three shares of improbable labels are compared:
the share seen, the share expected of a calibrated model if all labels are right, and the share
among random labels. Together they give the share of labels that were drawn at random, as wrong
labels often are:

    share = (seen - expected) / (random - expected)

This takes for granted that examples come in random order. If they are stored by class and not
shuffled, the model was last trained on other classes, and finds right labels improbable. So if
examples of one class come together, there is no estimate.
"""

import math
from typing import Any

import torch
from torch import Tensor

from selective_backprop._core.saved_state import FINITE, Saved
from selective_backprop._core.types import Float, Float64
from selective_backprop._memory.ledger import WrongShare

IMPROBABLE = 0.01  # a higher limit counts hard examples, a lower one leaves too few to count
BLOCKS = 256  # of equally many batches, so the second half of the epoch is known to 1/256
LEAST_ROWS = 200  # with fewer, the estimate is too rough
LEAST_BATCHES = 12  # in the second half; with 8, estimates reached 0.11 with right labels
LEAST_RANDOM = 0.01  # if a lower share of random labels is improbable, the model knows too little
MOMENTS = 9  # the numbers that `_moments` returns
GROUP = 32  # at least so many rows are compared pair by pair; smaller batches are put together
BINS = 64  # of classes; a bin holds several neighbouring ones if there are more than 64
# If rows that come together are of one class with probability c by chance, and with c plus 5 % of
# 1 - c or 50 % of c, whichever is less, then they are in order. In random order this hardly occurs.
FEW_CLASSES, MANY_CLASSES = 0.05, 0.5
_TWO_SIDED = 1.96  # standard errors of a 95 % interval


class LabelNoise:
    """Estimates the share of wrong labels in the second half of the first epoch.

    In the first half, the model has learned too little. Wrong labels that the model finds plausible
    are missed, such as those of a similar class. At most 256 batches of a long epoch are used.
    """

    def __init__(self) -> None:
        # Of each block, the moments of its first batch, and how many of its first 32 rows or more
        # are of each class.
        self._sums: Float64[Tensor, "block sum"] | None = None
        self._every = 1  # batches of a block
        self._batches = 0
        self._latest: object = None  # the batch that rows were observed of last
        # Sums of the second half, and of `_pairs`, once the epoch is over.
        self.totals: Float64[Tensor, " sum"] | None = None

    def observe(
        self, outputs: Any, targets: Any, smoothing: float = 0.0, batch: object = None
    ) -> None:
        """Take in the predictions of a batch, or of a part of it, before the model trains on it.

        Outputs and targets are as for `probabilities`; others are ignored. `smoothing` is taken out
        of the predictions. `batch` is equal for all parts of a batch; None for a whole batch.
        """
        found = probabilities(outputs, targets)
        if found is None or self.totals is not None:
            return
        if self._sums is None:
            self._sums = found[0].new_zeros((BLOCKS, MOMENTS + BINS), dtype=torch.float64)
        if batch is None or batch != self._latest:
            if self._batches == BLOCKS * self._every:
                halved = self._sums.unflatten(0, (-1, 2)).sum(1)
                halved[:, MOMENTS:] = self._sums[::2, MOMENTS:]
                self._sums = torch.cat([halved, torch.zeros_like(halved)])
                self._every *= 2
            self._latest, self._batches = batch, self._batches + 1
        block, place = divmod(self._batches - 1, self._every)
        moments, counts = self._sums[block].split((MOMENTS, BINS))
        if not place:  # the first batch stands for its whole block
            moments += _moments(*found, smoothing).flatten()
        if place * len(found[1]) < GROUP:
            counts += _count(found[1], found[0].shape[1])

    def own(self) -> Float64[Tensor, " sum"]:
        """Return this rank's sums; those of moments are 0 if its second half is too short."""
        if self._sums is None:
            return torch.zeros(MOMENTS + 2, dtype=torch.float64)
        blocks = -(-self._batches // self._every)
        moments, counts = self._sums[:blocks].cpu().split((MOMENTS, BINS), 1)
        found = moments[blocks // 2 :].sum(0) * (blocks - blocks // 2 >= LEAST_BATCHES)
        return torch.cat([found, _pairs(counts)])

    @property
    def ordered(self) -> bool:
        """Whether examples of one class came together, so that nothing can be estimated."""
        if self.totals is None:
            return False
        rows, *_, alike, limit = self.totals.tolist()
        return rows >= LEAST_ROWS and alike > limit

    @property
    def found(self) -> WrongShare | None:
        """The estimate; None before the first epoch is over, or if nothing can be estimated."""
        if self.totals is None or self.ordered:
            return None
        rows, above, room, _, above2, both, *_, room2 = self.totals[:MOMENTS].tolist()
        if rows < LEAST_ROWS or room < LEAST_RANDOM * rows:
            return None
        share = above / room
        # The variance of a ratio of sums, from the residuals `above - share * room` of the rows.
        spread = max(0.0, above2 - 2 * share * both + share**2 * room2)
        return WrongShare(min(1.0, max(0.0, share)), _TWO_SIDED * math.sqrt(spread) / room)

    def state_dict(self) -> dict[str, Any]:
        sums = None if self._sums is None else self._sums.clone()
        counts = {"every": self._every, "batches": self._batches}
        return {"sums": sums, "totals": self.totals, **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        def read(saved: Saved, *shape: int) -> Tensor | None:
            if saved.value is None:
                return None
            return saved.tensor(torch.float64, shape=shape, least=-FINITE, most=FINITE).clone()

        sums, every, batches, totals = Saved(state).fields("sums", "every", "batches", "totals")
        found, ended = read(sums, BLOCKS, MOMENTS + BINS), read(totals, MOMENTS + 2)
        length = every.whole(1)
        self._batches = batches.whole(0, BLOCKS * length)
        self._sums, self._every, self._latest, self.totals = found, length, None, ended


def _count(labels: Tensor, classes: int) -> Float64[Tensor, " bin"]:
    known = (labels >= 0) & (labels < classes)
    counts = torch.zeros(BINS, dtype=torch.float64, device=labels.device)
    bins = labels.where(known, 0) * BINS // max(BINS, classes)
    return counts.index_add_(0, bins, known.double())


def _pairs(counts: Float64[Tensor, "block bin"]) -> Float64[Tensor, "2"]:
    """Return how many more pairs of rows that come together are of one class than by chance.

    The second number is the limit: if the first is above it, examples are not in random order.
    """
    together = max(1, math.ceil(GROUP * len(counts) / max(1.0, float(counts.sum()))))
    groups = counts[: len(counts) // together * together].unflatten(0, (-1, together)).sum(1)
    rows, every = groups.sum(1), groups.sum(0)
    pairs, total = (rows * rows - rows).sum(), rows.sum()
    alike, chance = groups.square().sum() - total, (every @ every - total) / (total * total - total)
    limit = pairs * torch.minimum(FEW_CLASSES * (1.0 - chance), MANY_CLASSES * chance)
    return torch.stack([alike - pairs * chance, limit]).nan_to_num()


def _moments(
    p: Float[Tensor, "row class"], labels: Tensor, smoothing: float
) -> Float64[Tensor, "moment moment"]:
    """Return the sums over rows of all products of two of 1, `above` and `room`.

    `above` is seen - expected in the formula of this module, and `room` is random - expected.
    """
    classes, total = p.shape[1], 1.0
    if smoothing:  # a model learns to spread this much of its probability evenly
        p = (p - smoothing / classes).clamp(min=0.0)
        total = p.sum(1, keepdim=True)
    low = (p < IMPROBABLE * total).to(p.dtype)
    own = low.gather(1, labels.clamp(0, classes - 1)[:, None])[:, 0]
    expected = ((p * low) / total).sum(1)
    above, room = own - expected, low.sum(1) / classes - expected
    counts = (labels >= 0) & (labels < classes)
    columns = torch.stack([torch.ones_like(above), above, room]) * counts
    # Outputs of a model that diverged are NaN, and count as nothing.
    columns = columns.double().nan_to_num()
    return columns @ columns.T


def probabilities(outputs: Any, targets: Any) -> tuple[Float[Tensor, "row class"], Tensor] | None:
    """Return class probabilities and labels of logits; None for other kinds of outputs.

    Logits are `[row, class]`, targets class indices, negative to ignore; or `[row]`, and 0 or 1.
    """
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor)) or not outputs.ndim:
        return None
    outputs, targets = (each.detach().as_subclass(Tensor) for each in (outputs, targets))
    outputs, rows = outputs.float(), len(outputs)
    floats = targets.is_floating_point()
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        fits = targets.shape == (rows,) and not floats and not targets.is_complex()
        return (outputs.softmax(1), targets.long()) if fits else None
    if outputs.numel() != rows or targets.numel() != rows or not floats:
        return None
    logits = torch.stack([torch.zeros_like(outputs), outputs], -1).reshape(rows, 2)
    return logits.softmax(1), (targets.reshape(rows) > 0.5).long()
