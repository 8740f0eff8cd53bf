"""RS2: train on another random subset in each epoch, until all examples had their turn."""

from dataclasses import dataclass
from typing import final

import selective_backprop as sb


@final
@dataclass(frozen=True)
class LeastVisited(sb.scorers.AbstractMemoryScorer):
    """Score examples the higher, the less often they were trained on."""

    needs = sb.scorers.Needs(passes=False, indices=True, remembers=True, model=False)

    def recall(self, ledger, epoch):
        return -ledger.selected.float()


def rs2(fraction: float = 0.1) -> sb.Strategy:
    """Train on a `fraction` of the examples per epoch, on none again before all had their turn.

    Nothing is charged beside training. The subset is drawn window by window, and which of equally
    often visited examples are taken depends on the loader's order, so shuffle. The variant "with
    replacement" draws anew in each epoch, as `sb.random_backprop` does.

    Source:
        Okanovic et al. 2024, "Repeated Random Sampling for Minimizing the Time-to-Accuracy of
        Learning", ICLR 2024, arXiv:2305.18424, abstract of v1: "we randomly sample the subset of
        training data for each epoch of model training". The fraction is that of the authors'
        README, under "Running RS2 w/o replacement": "--fraction 0.1".
    """
    return sb.Strategy("rs2", LeastVisited(), sb.selectors.Top(fraction))
