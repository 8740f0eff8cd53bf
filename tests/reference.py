"""Each rule in plain Python, written from its paper; what is fast is checked against it."""

import math
import random
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

Number = TypeVar("Number")  # floats; or fractions, where no rounding is wanted


class LossHistory:
    """The most recent losses: Jiang et al. 2019, arXiv:1910.00762, section 3.

    Args:
        size: how many losses are remembered, the paper's R.
    """

    def __init__(self, size: int) -> None:
        self.losses: deque[float] = deque(maxlen=size)

    def add(self, losses: Sequence[float]) -> None:
        for loss in losses:
            self.losses.append(loss)

    def percentile(self, loss: float) -> float:
        """The share of the remembered losses that is strictly lower."""
        lower = sum(1 for other in self.losses if other < loss)
        return lower / len(self.losses)


def selection_probabilities(
    history: LossHistory, losses: Sequence[float], beta: float
) -> list[float]:
    """The authors' order: the batch enters the history first, then each loss is ranked."""
    history.add(losses)
    return [history.percentile(loss) ** beta for loss in losses]


def toss_coins(probabilities: Sequence[float], tosses: Sequence[float]) -> list[int]:
    """The rows whose coin, a number in [0, 1), falls below their probability."""
    rows = zip(range(len(probabilities)), probabilities, tosses, strict=True)
    return [row for row, probability, toss in rows if toss < probability]


def inclusion_odds(weights: Sequence[Number], count: int) -> list[Number]:
    """The odds `min(1, c * weight)` that sum to `count`: rows that exceed 1 become certain.

    Where fewer than `count` weights are positive, those are certain and the others share the
    rest.
    """
    positive = sum(1 for weight in weights if weight > 0)
    if positive <= count:
        zero = type(weights[0])(count - positive) / max(1, len(weights) - positive)
        return [1 + 0 * zero if weight > 0 else zero for weight in weights]
    certain: set[int] = set()
    while True:
        rest = sum(weight for row, weight in enumerate(weights) if row not in certain)
        scale = (count - len(certain)) / rest
        exceeding = {row for row, weight in enumerate(weights) if scale * weight > 1} - certain
        if not exceeding:
            break
        certain |= exceeding
    return [1 + 0 * scale if row in certain else scale * w for row, w in enumerate(weights)]


def tilted_odds(probabilities: Sequence[Number], count: int) -> list[Number]:
    """The odds `p + tilt * p * (1 - p)` that sum to `count`; scaled where |tilt| exceeds 1."""
    missing = count - sum(probabilities)
    room = sum(p * (1 - p) for p in probabilities)
    if room == 0 or abs(missing) > room:
        return inclusion_odds(probabilities, count)
    tilt = missing / room
    return [p + tilt * p * (1 - p) for p in probabilities]


def sample_systematically(odds: Sequence[float], order: Sequence[int], offset: float) -> list[int]:
    """Walk over the rows in a random order; whoever steps over the next tooth is taken.

    Teeth stand at `offset`, `offset + 1`, `offset + 2` and so on; a row's step is its odds.
    """
    taken, walked, tooth = [], 0.0, offset
    for row in order:
        walked += odds[row]
        if walked > tooth:
            taken.append(row)
            tooth += 1
    return sorted(taken)


def sample_uniformly(order: Sequence[int], count: int) -> list[int]:
    """The first of the rows in a random order."""
    return sorted(order[:count])


def top(scores: Sequence[float], count: int) -> list[int]:
    """The rows of the highest scores."""
    return sorted(sorted(range(len(scores)), key=lambda row: -scores[row])[:count])


def bottom(scores: Sequence[float], count: int) -> list[int]:
    """The rows of the lowest scores."""
    return sorted(sorted(range(len(scores)), key=lambda row: scores[row])[:count])


class PlainSelection:
    """Selective-Backprop's whole selection, one loss at a time.

    Args:
        beta: selectivity.
        history: how many recent losses are ranked against, R.
        draw: `"bernoulli"` as in the paper, or `"exact"`.
        keep: how many rows an exact draw takes of each window.
        seed: of Python's generator.
    """

    def __init__(
        self, *, beta: float, history: int, draw: str, keep: int = 0, seed: int = 0
    ) -> None:
        self.beta, self.draw, self.keep = beta, draw, keep
        self.history = LossHistory(history)
        self.random = random.Random(seed)

    def select(self, losses: Sequence[float]) -> list[int]:
        wanted = selection_probabilities(self.history, losses, self.beta)
        if self.draw == "bernoulli":
            return toss_coins(wanted, [self.random.random() for _ in losses])
        order = list(range(len(losses)))
        self.random.shuffle(order)
        odds = tilted_odds(wanted, self.keep)
        return sample_systematically(odds, order, self.random.random())


def cross_entropy(
    logits: Sequence[float],
    target: int,
    *,
    weights: Sequence[float] | None = None,
    smoothing: float = 0.0,
) -> float:
    """Cross-entropy of one example; smoothing shares out a part of the target evenly."""
    weights = weights or [1.0] * len(logits)
    total = math.log(sum(math.exp(logit) for logit in logits))
    surprise = [weight * (total - logit) for weight, logit in zip(weights, logits, strict=True)]
    return (1 - smoothing) * surprise[target] + smoothing * sum(surprise) / len(logits)


def token_cross_entropy(
    logits: Sequence[Sequence[float]], targets: Sequence[int], *, ignored: int
) -> float:
    """The mean over the tokens of one example that are not masked; 0 if all are."""
    losses = [
        cross_entropy(token, target)
        for token, target in zip(logits, targets, strict=True)
        if target != ignored
    ]
    return sum(losses) / len(losses) if losses else 0.0
