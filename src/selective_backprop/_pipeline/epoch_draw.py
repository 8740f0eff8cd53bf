"""Draw from all examples when an epoch begins, if no row's odds depend on other rows."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from selective_backprop._memory.history import History
from selective_backprop._pipeline.rows import Rows
from selective_backprop._pipeline.score_memory import Known, rank_among
from selective_backprop._pipeline.selection_buffer import SelectionBuffer, mix_seeds

MOST_AT_ONCE = 2**17  # examples; a draw from very many would take much extra memory


@dataclass(frozen=True)
class Kept:
    """The examples that an epoch keeps, whenever they come up."""

    mask: np.ndarray  # [example], bool
    weights: Tensor | None  # float32 [example]; None if all weigh 1

    def of(self, keys: Tensor) -> Rows:
        """Return those of some candidates that are kept."""
        keys = keys[torch.from_numpy(self.mask[keys.numpy()])]
        return Rows(keys, len(keys), weights=None if self.weights is None else self.weights[keys])


class EpochDraw:
    """Draws from all examples when an epoch begins, so that it is known how many are kept.

    Args:
        buffer: holds the seed and the selector; no row's odds may depend on the other rows.
    """

    def __init__(self, buffer: SelectionBuffer) -> None:
        assert buffer.selector is not None  # it holds keys, not mere numbers of rows
        self.selector = buffer.selector
        self._buffer = buffer
        self._latest: tuple[tuple[int, int], Known, Kept] | None = None

    def kept(self, epoch: int, known: Known, past: History | None = None) -> Kept:
        """Return what an epoch keeps of examples whose scores are all `known`.

        Args:
            epoch: number of the epoch.
            known: the score of each example, none NaN.
            past: scores that the selector ranks against; by default the known scores.
        """
        seed = mix_seeds(*self._buffer.seed, epoch)
        if self._latest is not None:
            asked, scores, kept = self._latest
            if asked == (epoch, seed) and scores is known:
                return kept
        if past is None:
            past = rank_among(known) if self._buffer.ranks else History(1)
        generator = torch.Generator().manual_seed(seed)
        mask, weights = np.zeros(len(known), dtype=bool), None
        for start in range(0, len(known), MOST_AT_ONCE):
            part = known[start : start + MOST_AT_ONCE]
            rows, weighing = self.selector.select(part, past, generator)
            mask[start : start + len(part)][rows.numpy()] = True
            if weighing is not None:
                weights = torch.ones(len(known)) if weights is None else weights
                weights[start : start + len(part)][rows] = weighing
        kept = Kept(mask, weights)
        self._latest = (epoch, seed), known, kept
        return kept
