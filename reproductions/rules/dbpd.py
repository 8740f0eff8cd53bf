"""Progressive Data Dropout by difficulty: train on what the model is not sure of yet."""

from dataclasses import dataclass
from typing import final

import torch

import selective_backprop as sb


@final
@dataclass(frozen=True)
class Unsure(sb.selectors.AbstractSelector):
    """Keep the candidates whose true class has a probability, `exp(-score)`, below `threshold`."""

    threshold: float

    @property
    def terms(self):
        bernoulli = sb.selectors.Draw.BERNOULLI  # no row depends on the others of its window
        return sb.selectors.Terms(0.5, bernoulli, promises=False, confidence=True)

    def start(self, context):
        def choose(scores, history, generator):
            return sb.selectors.Choice(torch.nonzero(torch.exp(-scores) < self.threshold)[:, 0])

        return sb.selectors.Stateless(choose)


def dbpd(threshold: float = 0.3, end: float = 29 / 30) -> sb.Strategy:
    """Train on candidates whose true class has a probability below `threshold`, at the end on all.

    The paper counts "effective epochs", those of backward passes. Here the forward pass by which
    each candidate is judged is charged, too. `1 - 1 / epochs` ends before a run's last epoch.

    Source:
        Shriram M S et al. 2025, "Progressive Data Dropout: An Embarrassingly Simple Approach to
        Faster Training", NeurIPS 2025, arXiv:2505.22342, abstract: "The proposed Progressive Data
        Dropout reduces the number of effective epochs to as little as 12.4% of the baseline." The
        rule is that of the authors' `train_with_revision`, for which their README has "--epoch 30",
        "--start_revision 29" and "--threshold 0.3".
    """
    scorer = sb.scorers.Forward(training=True)  # in training mode, as in the authors' code
    return sb.Strategy("dbpd", scorer, Unsure(threshold), sb.Schedule(end=end))
