"""What is remembered of examples, in plain Python: what is fast is checked against it."""

import math
from collections import deque
from collections.abc import Sequence


class PlainLedger:
    """The last scores of each example, newest first; one call files one score of each."""

    def __init__(self, examples: int, depth: int) -> None:
        self.last = [deque(maxlen=depth) for _ in range(examples)]

    def file(self, indices: Sequence[int], scores: Sequence[float], epoch: int) -> None:
        for index, score in dict(zip(indices, scores, strict=True)).items():
            self.last[index].appendleft((score, epoch))

    def newest(self, index: int) -> tuple[float, int] | None:
        return self.last[index][0] if self.last[index] else None


def remembered(
    newest: tuple[float, int] | None, index: int, epoch: int, good_for: int, *, spread: bool
) -> float | None:
    """The score that Stale-SB uses again, or None where the example is scored anew.

    Jiang et al. 2019, arXiv:1910.00762, section 3.3: losses are used for n epochs, the one they
    were taken in among them. Spread, each epoch has an n-th of the examples scored anew.
    """
    if newest is None:
        return None
    score, taken = newest
    if epoch - taken >= good_for or (spread and (index + epoch) % good_for == 0):
        return None
    return score


def weighted_average(scores: Sequence[float], decay: float) -> float:
    """The average of the last scores, newest first, each weighing `decay` times the next newer."""
    weights = [decay**age for age in range(len(scores))]
    return sum(w * score for w, score in zip(weights, scores, strict=True)) / sum(weights)


def given_up(lasts: list[list[float]], share: float) -> set[int]:
    """Return which examples are given up, by their last two losses or more, newest last.

    An example with fewer than two is known too little of.
    """
    known = [i for i, losses in enumerate(lasts) if len(losses) >= 2]
    right = [i for i in known if lasts[i][-1] <= math.log(2)]
    if len(right) < len(known) / 2:
        return set()
    for limit in sorted({lasts[i][-2] for i in known if lasts[i][-2] > math.log(2)}):
        far = [i for i in known if lasts[i][-2] >= limit]
        recovered = [i for i in far if i in right]
        if (len(recovered) + 1) / (len(far) + 1) < share:
            return {i for i in known if all(loss >= limit for loss in lasts[i])}
    return set()
