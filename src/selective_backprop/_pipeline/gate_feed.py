"""Show a gate the losses that training computes anyway, so that it needs no scoring pass."""

from collections import deque
from typing import Any

import torch
from torch import Tensor

from selective_backprop._batches.losses import IGNORED, check_losses, lacks_target
from selective_backprop._batches.structure import rows_of
from selective_backprop._core.errors import LossError
from selective_backprop._core.types import NO_TARGET, Scores
from selective_backprop._sampling.draws import Selection
from selective_backprop._sampling.schedule import RunningGate
from selective_backprop.scorers import AbstractScorer, Excess, Forward, Measure
from selective_backprop.scorers._abstract import scorer_parts
from selective_backprop.scorers._forward import error_norms

AHEAD = 8  # batches that a loop may fetch before it trains on the first of them


class GateFeed:
    """Show a gate the scores of each batch from which nothing was selected, once."""

    def __init__(self, gate: RunningGate, measure: Measure) -> None:
        self.measure = measure
        self._gate = gate
        # The weights of each batch, which tell it apart, and the scores of its parts by first row.
        self._handed: deque[tuple[Tensor, dict[int, Scores]]] = deque(maxlen=AHEAD)

    @classmethod
    def of(cls, gate: RunningGate | None, scorer: AbstractScorer | None) -> "GateFeed | None":
        parts = list(scorer_parts(scorer))
        if gate is None or any(isinstance(part, Excess) for part in parts):
            return None
        last = parts[-1]
        return cls(gate, Measure(last.measure)) if isinstance(last, Forward) else None

    def hand_out(self, weights: Tensor) -> None:
        self._handed.append((weights, {}))

    def take(self, selection: Selection, losses: Tensor, outputs: tuple[Any, Any] | None) -> int:
        weights = selection.weights
        for place, (whole, parts) in enumerate(self._handed if len(weights) else ()):
            rows = rows_of(weights, whole)
            if rows is None:
                continue
            scores = self._scores(losses, outputs, len(weights))
            if scores is not None:
                parts.setdefault(rows.start, scores)
            if sum(map(len, parts.values())) < len(whole):
                break
            del self._handed[place]
            self._gate.observe(torch.cat(list(parts.values())))
            return len(whole)
        return 0

    def _scores(self, losses: Tensor, outputs: Any, rows: int) -> Scores | None:
        if self.measure is Measure.LOSS:
            losses = check_losses(losses, rows).detach()
            bare = None if outputs is None else lacks_target(losses, outputs[1])
            return losses if bare is None else losses.masked_fill(bare, NO_TARGET)
        if outputs is None:
            return None
        try:
            with torch.no_grad():
                return check_losses(error_norms(*outputs, IGNORED), rows)
        except LossError:  # the loop's outputs may differ from the scored ones
            return None
