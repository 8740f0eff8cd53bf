"""OrderDP: train on the highest losses among random candidates."""

from dataclasses import dataclass
from typing import final

import torch

import selective_backprop as sb


@final
@dataclass(frozen=True)
class RandomThenTop(sb.selectors.AbstractSelector):
    """Draw a share `drawn` of each window at random, and keep the share `top` of these."""

    drawn: float
    top: float

    @property
    def terms(self):
        return sb.selectors.Terms(self.drawn * self.top)

    def start(self, context):
        def choose(scores, history, generator):
            size, count = len(scores), context.quota(len(scores))
            order = torch.randperm(size, generator=generator, device=scores.device)
            some = order[: max(count, round(self.drawn * size))]
            return sb.selectors.Choice(some[scores[some].topk(count).indices].sort().values)

        return sb.selectors.Stateless(choose)


def orderdp(drawn: float = 0.8, top: float = 0.375) -> sb.Strategy:
    """Train on the share `top` with the highest losses of a random share `drawn` of the examples.

    Losses are those of training steps, as in the authors' code, so nothing is charged beside
    training. There an example without a loss counts as one of 3, which few exceed; here it comes
    first. The choice is made window by window instead of once for an epoch.

    Source:
        Jin et al. 2026, "OrderDP: A Theoretically Guaranteed Lossless Dynamic Data Pruning
        Framework", ICLR 2026, arXiv:2606.08574. The authors' README: "it first samples a random
        subset of the training set, then keeps the top-q samples within that subset according to the
        current surrogate loss"; "--random_len_ratio 0.8 --top_q_ratio 0.375".
    """
    return sb.Strategy("orderdp", sb.scorers.Recorded(), RandomThenTop(drawn, top))
