"""SeTa: leave out some examples at random, and the easiest or hardest of the others in turns."""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from sklearn.cluster import KMeans

import selective_backprop as sb


@final
@dataclass(frozen=True)
class InWindow(sb.scorers.AbstractMemoryScorer):
    """Score examples so that `Confident` keeps a share of those in the epoch's window of losses."""

    share: float
    groups: int
    width: int  # of the window, in groups

    def recall(self, ledger, epoch):
        kept = -np.log1p(-0.5 * self.share)  # it keeps 2 * (1 - exp(-score))
        if epoch == 0:
            return torch.full((ledger.examples,), kept)
        losses = np.nan_to_num(ledger.recorded.observe().scores[0], nan=3.0)[:, None]
        found = KMeans(self.groups, random_state=0).fit(losses)
        rank = found.cluster_centers_.ravel().argsort().argsort()[found.labels_]  # 0: the easiest
        window = epoch % (self.groups - self.width + 1) + np.arange(self.width)
        return torch.where(torch.from_numpy(np.isin(rank, window)), kept, -torch.inf)


def seta(
    prune: float = 0.1, groups: int = 5, scale: float = 0.9, delta: float = 0.875
) -> sb.Strategy:
    """Leave out a share `prune` at random, and the groups of losses outside a sliding window.

    K-means sorts losses, unknown ones as 3, into `groups`. The window holds a share `scale` of them
    and moves from the easiest to the hardest, a group an epoch, again and again. In the authors'
    code, only losses that the random draw left are sorted, and it goes on drawing after `delta`.

    Source:
        Zhou et al. 2025, "Scale Efficient Training for Large Datasets", CVPR, arXiv:2503.13385,
        abstract: SeTa "clusters the remaining samples according to their learning difficulty
        measured by loss". The defaults are those of the authors' README, "scripts/cifar.sh SeTa 0.1
        5 0.9", and of that script, "--delta 0.875".
    """
    scorer, tosses = InWindow(1.0 - prune, groups, round(groups * scale)), sb.selectors.Confident
    return sb.Strategy("seta", scorer, tosses(1e-9, correction=0.0), sb.Schedule(end=delta))
