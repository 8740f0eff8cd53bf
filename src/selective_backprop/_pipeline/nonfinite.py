"""What happens to candidates whose score is not finite, or which lack a target to score by."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selective_backprop import scorers
from selective_backprop._batches.losses import ExampleLosses, lacks_target
from selective_backprop._batches.structure import Layout, join_rows
from selective_backprop._core.errors import LossError
from selective_backprop._core.options import NamedOption
from selective_backprop._core.types import LossesOf
from selective_backprop._pipeline.rows import Rows
from selective_backprop.scorers import AbstractScorer
from selective_backprop.scorers._abstract import scorer_parts

MOST_LOOKED_AT = 2**16  # targets of a batch; the CPU would take longer than a GPU to mark more


class NonFinite(NamedOption):
    """What to do with examples whose scores are infinite or NaN.

    `RAISE` stops with an error that names these examples. `SKIP` does not train on them. For this,
    the CPU has to wait for the GPU before each selection: how many are skipped decides how many
    more candidates are loaded. `SELECT` ranks them above all others.

    If a loss that is recorded in training is infinite or NaN, it counts as unknown, and the example
    is kept at the same rate as the others. On the CPU, `RAISE` stops at such a loss, too.
    """

    RAISE = "raise"
    SKIP = "skip"
    SELECT = "select"


class LateChecks:
    """Raise an error at once if a check fails on the CPU, and a few checks later on a GPU."""

    def __init__(self) -> None:
        self._running: deque[tuple[torch.cuda.Event, Tensor, Callable[[], Exception]]] = deque()

    def add(self, passed: Tensor, failure: Callable[[], Exception]) -> None:
        """Raise what `failure` returns unless a tensor holds one finite number, or True."""
        if passed.device.type != "cuda":
            if not _holds(passed):
                raise failure()
            return
        self._collect()
        flag = torch.empty(1, dtype=passed.dtype, pin_memory=True)
        flag.copy_(passed.reshape(1), non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(passed.device))
        self._running.append((event, flag, failure))

    def wait(self) -> None:
        for event, _, _ in self._running:
            if not event.query():
                event.synchronize()
        self._collect()

    def _collect(self) -> None:
        while self._running and self._running[0][0].query():
            _, flag, failure = self._running.popleft()
            if not _holds(flag):
                raise failure()


def _holds(flag: Tensor) -> bool:
    return math.isfinite(flag) if flag.is_floating_point() else bool(flag)


class FiniteGuard:
    """Applies the policy; with `later`, only in `sift`, a window at a time."""

    def __init__(self, policy: NonFinite, layout: Layout, *, later: bool = False) -> None:
        self.policy = policy
        self.later = later and policy is not NonFinite.SELECT
        self._layout = layout
        self.late = LateChecks()
        self.skipped = 0

    def pass_on(self, rows: Rows) -> Rows:
        """Return the scored rows that pass; `SELECT` turns NaN and -inf into +inf.

        With `RAISE` on CUDA, the CPU does not wait, so the error may be about an earlier batch.
        """
        scores = rows.scores
        if scores is None or (scores.device.type == "cpu" and np.isfinite(scores.numpy()).all()):
            return rows
        if self.policy is NonFinite.SELECT:
            return rows._replace(scores=scores.nan_to_num(torch.inf, torch.inf, torch.inf))
        return rows if self.later else self.sift([rows])[0]

    def sift(self, pieces: Sequence[Rows]) -> list[Rows]:
        """Return those of the unchecked rows that pass; to skip rows, the CPU waits once."""
        if self.policy is NonFinite.RAISE:
            self._check(pieces)
            return list(pieces)
        masks = [piece.scores.isfinite() for piece in pieces if piece.scores is not None]
        whole = torch.stack([mask.all() for mask in masks]).tolist()
        found = zip(pieces, masks, whole, strict=True)
        return [piece if all_pass else self._skip(piece, mask) for piece, mask, all_pass in found]

    def _check(self, pieces: Sequence[Rows]) -> None:
        bare = [piece._replace(batch=None) for piece in pieces]
        scores = [piece.scores for piece in pieces if piece.scores is not None]
        all_scores = scores[0] if len(scores) == 1 else torch.cat(scores)
        largest = torch.linalg.vector_norm(all_scores, torch.inf)  # NaN if a score is NaN
        self.late.add(largest, lambda: LossError(_describe(bare)))

    def _skip(self, rows: Rows, finite: Tensor) -> Rows:
        kept = finite.nonzero().flatten()
        self.skipped += rows.count - kept.shape[0]
        return Rows(
            join_rows([rows.batch], self._layout, [kept]),
            kept.shape[0],
            None if rows.indices is None else rows.indices[kept.to(rows.indices.device)],
            None if rows.scores is None else rows.scores[kept],
            features=None if rows.features is None else rows.features[kept],
        )


def _describe(pieces: Sequence[Rows]) -> str:
    found = ((rows, rows.scores.cpu()) for rows in pieces if rows.scores is not None)
    rows, scores = next(pair for pair in found if not bool(pair[1].isfinite().all()))
    bad = (~scores.isfinite()).nonzero().flatten()
    some = bad[:10]
    places = f"rows {some.tolist()} of a batch"
    if rows.indices is not None:
        places = f"examples {rows.indices.cpu()[some].tolist()} of the data set ({places})"
    return (
        f"{bad.shape[0]} of {rows.count} losses are not finite: {places}, {scores[some].tolist()}. "
        'Mend the data or lower the learning rate; nonfinite="skip" leaves such examples out, '
        'nonfinite="select" trains on them.'
    )


class TargetWatch:
    """Sees, before batches leave the CPU, whether rows lack a target; only then are rows marked.

    With scorers or losses of the user's own, any row may lack a target.
    """

    def __init__(self, scorer: AbstractScorer | None, losses: LossesOf | None) -> None:
        own = (type(each).__module__.startswith(scorers.__name__) for each in scorer_parts(scorer))
        plain = isinstance(losses, ExampleLosses) and losses.outputs is None
        self._losses = losses if plain and all(own) else None
        self.lacking = self._losses is None  # whether a row that was scored may have lacked one
        if self._losses is not None:
            self._losses.marks = False

    def mark(self) -> None:
        self.lacking = True
        if self._losses is not None:
            self._losses.marks = True

    def look(self, batch: Any) -> None:
        if self._losses is None:
            return
        targets = batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
        plain = isinstance(targets, Tensor) and targets.ndim > 0 and not targets.is_nested
        if not plain or targets.device.type != "cpu" or targets.numel() > MOST_LOOKED_AT:
            return self.mark()
        zeros = torch.zeros(len(targets))  # a loss of 0 is needed to lack a target
        bare = lacks_target(zeros, targets, self._losses.unreduced.ignored)
        if bare is not None and bool(bare.any()):
            self.mark()
