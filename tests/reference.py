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


def sampling_shares(scores: Sequence[float]) -> list[float]:
    """With which probability each draw takes each row: in proportion to the scores.

    Katharopoulos & Fleuret 2018, arXiv:1803.00942, algorithm 1. Negative scores count as 0;
    infinite ones leave nothing to the others; where no score counts, all rows are alike.
    """
    if math.inf in scores:
        scores = [float(score == math.inf) for score in scores]
    positive = [max(0.0, score) for score in scores]
    if sum(positive) == 0:
        positive = [1.0] * len(scores)
    return [score / sum(positive) for score in positive]


def sample_with_replacement(shares: Sequence[float], tosses: Sequence[float]) -> list[int]:
    """For each toss, a number in [0, 1), the row in whose stretch of [0, 1) it falls."""
    rows = []
    for toss in tosses:
        walked, taken = 0.0, 0
        for row, share in enumerate(shares):
            if share > 0 and walked <= toss:
                taken = row
            walked += share
        rows.append(taken)
    return sorted(rows)


def importance_weight(share: float, rows: int, bias: float) -> float:
    """What a row weighs that comes up with probability `share`, where 1 / rows would be even."""
    return (1 / (rows * share)) ** bias


def mean_of_known(losses: Sequence[float]) -> float | None:
    """The mean of the finite losses; None if there are none."""
    known = [loss for loss in losses if math.isfinite(loss)]
    return sum(known) / len(known) if known else None


def prune_below_mean(
    losses: Sequence[float], remembered: Sequence[float], prune: float, tosses: Sequence[float]
) -> tuple[list[int], list[float]]:
    """InfoBatch's rows and weights: Qin et al. 2023, arXiv:2303.04947, section 3."""
    mean = mean_of_known(remembered)
    rows, weights = [], []
    for row, (loss, toss) in enumerate(zip(losses, tosses, strict=True)):
        if mean is None or loss >= mean:
            rows.append(row)
            weights.append(1.0)
        elif toss < 1 - prune:
            rows.append(row)
            weights.append(1 / (1 - prune))
    return rows, weights


def shown(
    losses: Sequence[float], remembered: Sequence[float], share: float, confidence: float
) -> list[int]:
    """The rows that KAKURENBO does not hide: Nguyen et al. 2023, arXiv:2310.10102, section 3."""
    rows = []
    for row, loss in enumerate(losses):
        lower = sum(1 for other in remembered if other < loss)
        among_lowest = lower < share * len(remembered)
        if not (among_lowest and math.exp(-loss) >= confidence):
            rows.append(row)
    return rows


def softmax(logits: Sequence[float]) -> list[float]:
    """The probability of each class."""
    powers = [math.exp(logit - max(logits)) for logit in logits]
    return [power / sum(powers) for power in powers]


def skip_odds(loss: float, floor: float) -> float:
    """With which odds easy-skip keeps an example, from the probability of its class."""
    unsure = 1 - math.exp(-max(0.0, loss))
    return min(1.0, max(floor, 2 * unsure))


def pull(loss: float) -> float:
    """With which probability a model misses the true class."""
    return 1 - math.exp(-max(0.0, loss))


def budget_odds(loss: float, known: list[float], noise: float, floor: float) -> float:
    """With which odds a budget of noise lets an example be kept, its threshold found by halving."""
    capped = [min(0.5, pull(each)) for each in known]
    budget = noise * sum(each**2 for each in capped)
    low, high = 0.0, 0.5
    for _ in range(200):
        middle = (low + high) / 2
        added = sum(each * (middle - each) for each in capped if each < middle)
        low, high = (middle, high) if added <= budget else (low, middle)
    return min(1.0, max(floor, pull(loss) / high)) if high else 1.0


def budget_weight(
    loss: float, known: list[float], noise: float, floor: float, correction: float
) -> float:
    """What a kept row weighs, so that steps are as long as had nothing been skipped."""

    def weight(loss: float) -> float:
        return budget_odds(loss, known, noise, floor) ** -correction

    kept = sum(budget_odds(each, known, noise, floor) for each in known)
    ours = sum(budget_odds(each, known, noise, floor) * weight(each) * pull(each) for each in known)
    plain = sum(map(pull, known))
    return weight(loss) / (ours / kept / (plain / len(known))) if plain > 0 else weight(loss)


def flip_labels(labels: Sequence[int], classes: int, rate: float, seed: int) -> list[int]:
    """Uniform label noise: exactly `round(rate * n)` labels become another class each.

    An example has two numbers of 32 bits from SplitMix64 started at a key of the seed: those with
    the lowest first number are flipped, as many classes further on as the second one says.
    """

    def mix(word: int) -> int:
        word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) % 2**64
        word = ((word ^ word >> 27) * 0x94D049BB133111EB) % 2**64
        return word ^ word >> 31

    step = 0x9E3779B97F4A7C15
    key = 0
    for number in (int.from_bytes(b"flips", "big"), seed):
        key = mix((key + step + mix((number + step) % 2**64)) % 2**64)
    first, second = (
        [mix((key + (2 * i + draw) * step) % 2**64) >> 32 for i in range(len(labels))]
        for draw in (1, 2)
    )
    order = sorted(range(len(labels)), key=lambda i: first[i])
    flipped = list(labels)
    for i in order[: round(rate * len(labels))]:
        others = [(labels[i] + further) % classes for further in range(1, classes)]
        flipped[i] = others[second[i] * len(others) // 2**32]
    return flipped


def el2n(logits: Sequence[float], target: int | Sequence[float]) -> float:
    """The length of the error vector: Paul et al. 2021, arXiv:2107.07075, section 2."""
    wanted = target
    if isinstance(target, int):
        wanted = [1.0 if number == target else 0.0 for number in range(len(logits))]
    pairs = zip(softmax(logits), wanted, strict=True)
    return math.sqrt(sum((probability - part) ** 2 for probability, part in pairs))


def grand_of_a_linear_model(
    weights: Sequence[Sequence[float]],
    biases: Sequence[float],
    inputs: Sequence[float],
    target: int,
) -> float:
    """The norm of one example's gradient: Paul et al. 2021, section 2.

    The cross-entropy of `weights @ inputs + biases` has the gradient `error * input` with respect
    to a weight, and `error` to a bias.
    """
    logits = [
        sum(weight * value for weight, value in zip(row, inputs, strict=True)) + bias
        for row, bias in zip(weights, biases, strict=True)
    ]
    errors = softmax(logits)
    errors[target] -= 1
    slopes = [error * value for error in errors for value in (*inputs, 1.0)]
    return math.sqrt(sum(slope**2 for slope in slopes))


def keep_share(scores: Sequence[float], share: float, *, highest: bool) -> list[int]:
    """Pruning: the examples of the highest (or lowest) scores; of ties the first."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i] if highest else scores[i], i))
    return sorted(order[: max(1, round(share * len(scores)))])


def keep_window(scores: Sequence[float], low: float, high: float) -> list[int]:
    """Pruning: the examples between two percentiles; of ties the first counts as lower."""
    order = sorted(range(len(scores)), key=lambda i: (scores[i], i))
    return sorted(order[round(low * len(scores)) : round(high * len(scores))])


def variance_gain(scores: Sequence[float]) -> float:
    """Katharopoulos & Fleuret 2018, arXiv:1803.00942, equation 26: what sampling is worth, tau.

    From the distance between the sampling distribution g and the uniform one u.
    """
    shares = [score / sum(scores) for score in scores]
    distance = sum((share - 1 / len(scores)) ** 2 for share in shares)
    return (1 - distance / sum(share**2 for share in shares)) ** -0.5


class PlainGate:
    """The same, algorithm 1: sample by importance while the average tau exceeds the threshold."""

    def __init__(self, smoothing: float, candidates: int, batch: int) -> None:
        self.smoothing = smoothing
        self.threshold = (candidates + 3 * batch) / (3 * batch)
        self.tau = 0.0

    def observe(self, scores: Sequence[float]) -> bool:
        self.tau = self.smoothing * self.tau + (1 - self.smoothing) * variance_gain(scores)
        return self.tau > self.threshold


def looked_back(values: Sequence[float], epochs: Sequence[int], epoch: int) -> list[float]:
    """What one example's last values, newest first, tell of an epoch."""
    gaps = [later - earlier for later, earlier in zip((epoch, *epochs), epochs, strict=False)]
    steps = [values[i] - values[i + 1] for i in range(len(values) - 1)]
    return [values[0], *steps, *gaps]


def crossing_probabilities(
    scores: Sequence[Sequence[float]], epochs: Sequence[Sequence[int]], epoch: int, rate: float
) -> list[float]:
    """How likely each next score is among the highest, by logistic regression on all examples.

    Scores and epochs are per example, newest first, equally many of each. The regression's
    squared weights count half, the constant does not.
    """
    lags = list(zip(*scores, strict=True))
    shares = [[sum(b < a for b in lag) / len(lag) for a in lag] for lag in lags]
    shares = [list(own) for own in zip(*shares, strict=True)]
    past = [looked_back(s[1:], e[1:], e[0]) for s, e in zip(shares, epochs, strict=True)]
    now = [looked_back(s[:-1], e[:-1], epoch) for s, e in zip(shares, epochs, strict=True)]
    scaled_past, scaled_now = [], []
    for learned, asked in zip(zip(*past, strict=True), zip(*now, strict=True), strict=True):
        mean = sum(learned) / len(learned)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in learned) / len(learned)) or 1.0
        low, high = min(learned), max(learned)
        scaled_past.append([(x - mean) / deviation for x in learned])
        scaled_now.append([(min(max(x, low), high) - mean) / deviation for x in asked])
    past = list(zip(*scaled_past, strict=True))
    now = list(zip(*scaled_now, strict=True))
    crossed = [own[0] >= 1 - rate for own in shares]
    weights, constant = [0.0] * len(past[0]), 0.0

    def probability(features: Sequence[float]) -> float:
        return 1 / (1 + math.exp(-constant - sum(map(lambda w, x: w * x, weights, features))))

    for _ in range(3000):  # downhill, in steps that the loss's curvature allows
        errors = [probability(x) - y for x, y in zip(past, crossed, strict=True)]
        step = 4 / (len(past) * (len(weights) + 1))
        constant -= step * sum(errors)
        for j, column in enumerate(zip(*past, strict=True)):
            slope = sum(map(lambda e, x: e * x, errors, column))
            weights[j] -= step * (slope + weights[j])
    return [probability(features) for features in now]


def odds_by_rank(losses: Sequence[float], rate: float) -> list[float]:
    """Selective-Backprop's odds at a rate, where a batch without ties ranks against itself.

    A candidate's percentile is the middle of its own share of the batch.
    """
    percentiles = [(sum(other < loss for other in losses) + 0.5) / len(losses) for loss in losses]
    return [percentile ** (1 / rate - 1) for percentile in percentiles]
