"""IES, instance-dependent early stopping: leave out examples whose loss has come to rest."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch

import selective_backprop as sb


@final
@dataclass(frozen=True)
class Unmastered(sb.scorers.AbstractMemoryScorer):
    """Score mastered examples minus infinity, and all others infinity."""

    threshold: float
    scorer = sb.scorers.Forward()  # of those left out
    needs = replace(sb.scorers.Recorded(rescore=scorer).needs, depth=6)

    def recall(self, ledger, epoch):
        both = [ledger.recorded.observe(), ledger.scored.observe()]  # trained on, or left out
        scores, epochs = (np.concatenate(each) for each in zip(*both, strict=True))
        past = [np.where(epochs == epoch - lag, scores, np.nan) for lag in range(1, 7)]
        losses = np.stack([np.fmax.reduce(each) for each in past])  # of six epochs, newest first
        bends = np.abs(np.diff(losses, 2, axis=0))
        mastered = np.isfinite(losses).all(0) & (bends[:3].mean(0) < self.threshold)
        return torch.from_numpy(np.where(mastered, -np.inf, np.inf).astype(np.float32))


def ies(threshold: float = 1e-3) -> sb.Strategy:
    """Leave an example out while its last three second differences of losses average < `threshold`.

    Six losses must be known. The paper counts backward passes; here the forward pass at the end of
    each epoch, which finds the losses of examples that were left out, is charged, too.

    Source:
        Yuan et al. 2025, "Instance-dependent Early Stopping", ICLR 2025, arXiv:2502.07547,
        abstract: "IES considers an instance as mastered if the second-order differences of its loss
        value remain within a small range around zero." The threshold is that of the authors'
        README, "We set the default base threshold to `1e-3`", the average that of their code.
    """
    return sb.Strategy("ies", Unmastered(threshold), sb.selectors.Confident(correction=0.0))
