"""The rule of an audit in plain Python, one example and one look at a time."""

import math
from collections.abc import Sequence


def doubt(logits: Sequence[float], label: int) -> float:
    """Of the label and the likeliest other class, the other's share minus the label's."""
    highest = max(logits)
    odds = [math.exp(logit - highest) for logit in logits]
    other = max(each for place, each in enumerate(odds) if place != label)
    return (other - odds[label]) / (other + odds[label])


def mean_doubt(doubts: Sequence[float]) -> float:
    """The mean over the looks at an example, the k-th of which weighs k."""
    weighed = [k * each for k, each in enumerate(doubts, start=1)]
    return sum(weighed) / sum(range(1, len(doubts) + 1))


def suspicion(doubts: Sequence[float]) -> float:
    """The mean doubt, and one more look at which the model was sure of the label."""
    return (len(doubts) * mean_doubt(doubts) - 1) / (len(doubts) + 1)


def ranking(doubts: Sequence[Sequence[float]]) -> list[int]:
    """The examples that were looked at, the most suspicious first; of equals the earlier first."""
    seen = [example for example, looks in enumerate(doubts) if looks]
    return sorted(seen, key=lambda example: (-suspicion(doubts[example]), example))
