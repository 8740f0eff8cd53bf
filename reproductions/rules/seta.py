"""SeTa: leave out some examples at random, and the easiest or hardest of the others in turns."""

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from sklearn.cluster import KMeans

import selective_backprop as sb


@final
@dataclass(frozen=True)
class InWindow(sb.scorers.AbstractScorer):
    """Score examples so that `Confident` keeps a share of those in the epoch's window of losses."""

    share: float
    groups: int
    scale: float

    @property
    def needs(self):
        return sb.scorers.Recorded().needs

    def start(self, context):
        return _Running(sb.scorers.Recorded().start(context), self)


class _Running(sb.scorers.Delegating):
    def __init__(self, inner, spec):
        super().__init__(inner)
        self.spec = spec

    def score(self, batch, indices):
        return self.inner.score(batch, indices)

    def recall(self, ledger, epoch):
        spec, kept = self.spec, -np.log1p(-0.5 * self.spec.share)  # it keeps 2 * (1 - exp(-score))
        if epoch == 0:
            return torch.full((ledger.examples,), kept)
        losses = ledger.recorded.observe().scores[0]
        losses = np.nan_to_num(losses, nan=3.0)[:, None]  # as in the authors' code, if unknown
        found = KMeans(spec.groups, random_state=0).fit(losses)
        rank = found.cluster_centers_.ravel().argsort().argsort()[found.labels_]  # 0: the easiest
        width = round(spec.groups * spec.scale)
        start = epoch % (spec.groups - width + 1)
        inside = (start <= rank) & (rank < start + width)
        return torch.from_numpy(np.where(inside, kept, -np.inf).astype(np.float32))


def seta(
    prune: float = 0.1, groups: int = 5, scale: float = 0.9, delta: float = 0.875
) -> sb.Strategy:
    """Leave out a share `prune` at random, and the groups of losses outside a sliding window.

    K-means sorts the losses of training into `groups`. The window holds a share `scale` of these
    and moves from the easiest to the hardest, a group an epoch; then it starts anew. Nothing is
    charged beside training. Here all losses are sorted, not only those that the random draw left,
    and from `delta` of training on nothing is left out, where the authors' code still draws.

    Source:
        Zhou et al. 2025, "Scale Efficient Training for Large Datasets", CVPR 2025,
        arXiv:2503.13385, abstract: "SeTa first performs random pruning to eliminate redundant
        samples, then clusters the remaining samples according to their learning difficulty measured
        by loss. Building upon this clustering, a sliding window strategy is employed to
        progressively remove both overly challenging and inefficient easy clusters following an
        easy-to-hard curriculum." The defaults are those of the authors' README, "For lossless
        pruning with SeTa": "scripts/cifar.sh SeTa 0.1 5 0.9", and of that script, "--delta 0.875".
    """
    scorer = InWindow(1.0 - prune, groups, scale)
    tosses = sb.selectors.Confident(floor=1e-9, correction=0.0)
    return sb.Strategy("seta", scorer, tosses, sb.Schedule(end=delta))
