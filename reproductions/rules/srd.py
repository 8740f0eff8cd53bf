"""Progressive Data Dropout at random: each epoch trains on a smaller share than the last."""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch

import selective_backprop as sb


@final
@dataclass(frozen=True)
class Shrinking(sb.scorers.AbstractMemoryScorer):
    """Give all examples the score with which `Confident` keeps a share `decay ** epoch`."""

    decay: float
    needs = sb.scorers.Needs(passes=False, indices=True, remembers=True, model=False)

    def recall(self, ledger, epoch):
        # `Confident` keeps a candidate with probability 2 * (1 - exp(-score)).
        return torch.full((ledger.examples,), -np.log1p(-0.5 * self.decay**epoch))


def srd(decay: float = 0.99, end: float = 29 / 30) -> sb.Strategy:
    """Train on a random share `decay ** epoch` of the examples, and at the end on all.

    Nothing is charged beside training. A coin is tossed for each example, while the authors' code
    takes a fixed number of each batch.

    Source:
        Shriram M S et al. 2025, arXiv:2505.22342 (see `dbpd`), the "Scalar Random Dropout (SRD)" of
        the authors' README. The rule and `decay` are those of their `train_with_percentage`, where
        0.99 is the "percentage to be sampled".
    """
    tosses = sb.selectors.Confident(floor=1e-9, correction=0.0)
    return sb.Strategy("srd", Shrinking(decay), tosses, sb.Schedule(end=end))
