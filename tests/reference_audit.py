"""The rule of an audit in plain Python, one example and one look at a time."""

import math
from collections.abc import Sequence


def doubt(logits: Sequence[float], label: int) -> float:
    """The probability of the likeliest other class, minus that of the label."""
    highest = max(logits)
    odds = [math.exp(logit - highest) for logit in logits]
    other = max(each for place, each in enumerate(odds) if place != label)
    return (other - odds[label]) / sum(odds)


def suspicion(doubts: Sequence[float]) -> float:
    """The mean over all looks, and one more at which the model was sure of the label."""
    looks = [*doubts, -1.0]
    return sum(looks) / len(looks)


def ranking(doubts: Sequence[Sequence[float]]) -> list[int]:
    """The examples that were looked at, the most suspicious first; of equals the earlier first."""
    seen = [example for example, looks in enumerate(doubts) if looks]
    return sorted(seen, key=lambda example: (-suspicion(doubts[example]), example))
