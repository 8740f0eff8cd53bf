"""Skip as many learned examples as a budget for noise in the gradient allows."""

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice, Draw, draw_coins
from selective_backprop.selectors._abstract import (
    FLOOR,
    AbstractSelector,
    RunningSelector,
    Terms,
)
from selective_backprop.selectors._confident import misses

LEAST_PULL = torch.finfo(torch.float64).tiny  # avoids a division by 0
MOST_PULL = 0.5  # longer pulls count as this much
USUAL = 0.75  # the share kept on data of which a model learns a good part


@final
@dataclass(frozen=True)
class NoiseBudget(AbstractSelector):
    """Keep each candidate with odds in proportion to its pull, as few as a budget allows.

    Losses are read as cross-entropies. An example's pull, `1 - exp(-loss)`, is the probability
    that the model misses its true class, counted as at most a half; it is about as long as the
    example's gradient at the outputs. Keeping an example with odds `P` adds
    `pull² * (1 / P - 1)` to the variance of the sum of all gradients. Odds of `pull / t`, at
    most 1, keep the fewest examples for a given variance. So `t` is as high as the budget
    allows, but at most a half: an example that the model gives less than even chances is always
    kept, and never favoured.

    An example of score minus infinity is not kept: `Recorded` may have given it up.

    A young model's pulls are nearly equal, and nearly all examples are kept. Once most examples
    are learned and a few are not, nearly all learned ones are skipped. There is no rate to set.

    Batches of harder rows make longer steps, at a learning rate that was chosen for others. So
    weights are scaled to make a step, on average and judged by the pulls, as long as it would be
    without skipping. The gain is that a step draws on more candidates.

    Args:
        noise: the variance that skipping may add, in (0, 1], as a share of the sum of all
            squared pulls.
        floor: the lowest odds, in (0, 1].
        correction: how much of the draw the weights undo, in [0, 1]: a kept row's weight is in
            proportion to `odds ** -correction`. With 1, `(weights * losses).mean()` is an
            unbiased estimate of the candidates' mean loss; with 0, all kept rows weigh the same.
        history: how many recent losses the budget is computed from, at least 1, where each window
            is scored. Where losses are remembered by example, it is computed from all of them.

    Raises:
        ConfigurationError: if a value is out of its range.
    """

    noise: float = 0.1
    floor: float = 0.1
    correction: float = 0.5
    history: int = 1024

    def __post_init__(self) -> None:
        settle(self, check_number, "noise", above=0, most=1, hint="0.1 is a tenth of what there is")
        settle(self, check_number, "floor", above=0, most=1, hint=FLOOR)
        settle(self, check_number, "correction", most=1, hint="1 is unbiased, 0 weighs all alike")
        settle(self, check_whole, "history")

    @property
    def terms(self) -> Terms:
        """Keep a share that depends on the losses; the rate is a usual one, three quarters."""
        return Terms(
            max(USUAL, self.floor),
            Draw.BERNOULLI,
            self.history,
            reweights=True,
            promises=False,
            confidence=True,
        )

    def start(self, context: Context) -> RunningSelector:
        """Return the running selector."""
        return _RunningBudget(self)


class _RunningBudget(RunningSelector):
    def __init__(self, spec: NoiseBudget) -> None:
        self._spec = spec
        self._past: tuple[History, int] | None = None
        self._certain, self._length = torch.tensor(MOST_PULL), torch.tensor(1.0)

    def select(self, scores: Scores, history: History, generator: torch.Generator) -> Choice:
        spec = self._spec
        if self._past != (history, history.filed):  # several windows may see the same history
            self._past, known = (history, history.filed), history.recent
            self._certain = certain_pull(known, spec.noise)
            odds = (misses(known) / self._certain).clamp(spec.floor, 1.0)
            self._length = step_length(known, odds, spec.correction)
        odds = (misses(scores) / self._certain).clamp(spec.floor, 1.0)
        odds.masked_fill_(scores == -torch.inf, 0.0)  # given up; the floor would keep some
        rows = draw_coins(odds, generator)
        weights = odds.take(rows).pow(-spec.correction) / self._length
        return Choice(rows, weights.float())

    def state_dict(self) -> dict[str, Any]:
        return {}  # all is computed again from the history

    def load_state_dict(self, state: dict[str, Any]) -> None:
        Saved(state).fields()
        self._past = None


def certain_pull(losses: Tensor, noise: float) -> Tensor:
    """Return the lowest pull at which an example is certain to be kept, for a budget of noise.

    Args:
        losses: all known losses, `[known]`.
        noise: the budget, as a share of the sum of squared pulls.

    Returns:
        The highest `t`, at most a half, for which `sum(pull * (t - pull))` over pulls below `t`
        is within the budget. A float64 scalar above 0, found without a host synchronisation.
    """
    ascending = misses(losses).clamp(max=MOST_PULL).sort().values
    if not len(ascending):
        return ascending.new_tensor(MOST_PULL)
    sums, squares = ascending.cumsum(0), ascending.square().cumsum(0)
    budget = noise * squares[-1]
    added = ascending * sums - squares  # the variance if t were each of the pulls; never falls
    last = torch.searchsorted(added, budget, right=True).sub(1).clamp(min=0)
    # Solves `sum(pull * (t - pull)) = budget` over the pulls up to that one.
    t = (budget + squares.take(last)) / sums.take(last)
    return t.nan_to_num(nan=MOST_PULL, posinf=MOST_PULL).clamp(LEAST_PULL, MOST_PULL)


def step_length(losses: Tensor, odds: Tensor, correction: float) -> Tensor:
    """Return the length of steps relative to plain training, taking pulls for gradients' lengths.

    Args:
        losses: all known losses, `[known]`.
        odds: each example's odds of being kept, above 0, `[known]`.
        correction: a kept row weighs `odds ** -correction`.

    Returns:
        The mean weighted pull of kept rows over the mean pull of all; 1 where every pull is 0. A
        float64 scalar, found without a host synchronisation.
    """
    pulls = misses(losses)
    # A row is kept with its odds, and then weighs `odds ** -correction`.
    kept = (odds.pow(1.0 - correction) * pulls).sum() / odds.sum()
    return (kept / pulls.mean()).nan_to_num(nan=1.0)
