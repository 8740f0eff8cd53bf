"""The rows and weights that selectors return, and how an exact number of rows is drawn."""

from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from selective_backprop._core.options import NamedOption, check_whole
from selective_backprop._core.types import Float64, Odds, RowIndices, RowWeights


class Draw(NamedOption):
    """How many rows a draw yields.

    A window holds the candidates for one training batch. `EXACT` takes a fixed number of rows from
    each window. `BERNOULLI` tosses a coin for each candidate, so the number of rows varies.
    """

    EXACT = "exact"
    BERNOULLI = "bernoulli"


DrawName: TypeAlias = Literal["exact", "bernoulli"]


class Choice(NamedTuple):
    """The candidates that a selector keeps.

    Attributes:
        rows: the positions of the kept rows among the candidates, ascending. No position comes
            twice, unless the selector draws with replacement.
        weights: one weight per kept row, or None if all weights are 1.
    """

    rows: RowIndices
    weights: RowWeights | None = None


class Selection(NamedTuple):
    """The indices and the weights of a training batch's rows.

    Use `(selection.weights * losses).mean()` as the loss of the batch. Dividing by the sum of the
    weights instead would bias the gradient.

    Attributes:
        indices: each row's index in the data set, int64 `[row]`; None for a stream.
        weights: each row's weight, float32 `[row]`; all 1 if the strategy does not reweight.
    """

    indices: RowIndices | None
    weights: RowWeights


def inclusion_odds(weights: Odds, count: int) -> Odds:
    """Return each row's odds of being drawn, as a probability: `min(1, c * weight)`.

    The factor `c` makes the odds sum to `count`. If fewer than `count` weights are positive, rows
    with positive weights have odds of 1, and the other rows share the rest of the count evenly.

    Args:
        weights: one weight per row, 0 or between 1e-280 and 1e300; lower ones may count as 0.
        count: number of rows to draw; at most the number of rows.

    Returns:
        Odds in [0, 1] on the weights' device. The host does not wait for the device.
    """
    count = check_whole("count", count, least=0, most=weights.shape[0])
    if count == weights.shape[0]:
        return torch.ones_like(weights)
    # With tiny weights, rows of weight 0 share evenly what others leave: if nothing, below 1e-290.
    weights = weights.clamp(min=1e-300)
    # Summed from the lowest up, so that small weights are not lost beside large ones.
    tails = weights.sort().values.cumsum(0)[len(weights) - count :]
    # If the j largest weights have odds of 1, the other rows share the rest of the count in
    # proportion to their weights, which gives a c for each j. With each of these, the odds sum to
    # at most the count, so the largest c is the right one.
    scale = (_up_to(count, weights.device) / tails).amax()
    return (weights * scale).clamp_(max=1.0)


@lru_cache(maxsize=8)
def _up_to(count: int, device: torch.device) -> Odds:
    return torch.arange(1, count + 1, device=device, dtype=torch.float64)


def tilted_odds(probabilities: Odds, count: int) -> Odds:
    """Return probabilities of being drawn that sum to `count` and stay close to the given ones.

    A probability `p` becomes `p + d * p * (1 - p)`, with one `d` for all rows. So probabilities
    near 0 or 1 hardly change. If `d` would have to be above 1 or below -1, the probabilities are
    scaled by `inclusion_odds` instead.

    Args:
        probabilities: each row's own probability of being kept, in [0, 1].
        count: number of rows to draw; at most the number of rows.

    Returns:
        Odds in [0, 1] on the probabilities' device. The host does not wait for the device.
    """
    count = check_whole("count", count, least=0, most=probabilities.shape[0])
    if probabilities.device.type == "cpu":
        return tilt_on_host(probabilities, count)
    return tilt_on_device(with_room(probabilities), count)


def tilt_on_host(probabilities: Odds, count: int) -> Odds:
    """Compute `tilted_odds` in NumPy, which takes 95 us less for a window than torch."""
    kept = probabilities.numpy()
    total = np.add.reduce(kept)  # np.sum without its checks of arguments
    room = total - kept @ kept  # the sum of p * (1 - p)
    # A tilt d beyond ±1 would take odds out of [0, 1]. Without room all p are 0 or 1.
    if abs(count - total) > room or room <= 0.0:
        return inclusion_odds(probabilities, count)
    tilt = (count - total) / room  # d, with which the sum of p + d * p * (1 - p) is the count
    return torch.from_numpy(kept * (1.0 + tilt - tilt * kept))


def with_room(probabilities: Odds) -> Float64[Tensor, "2 candidate"]:
    return torch.stack([probabilities, probabilities * (1.0 - probabilities)])


def tilt_on_device(both: Float64[Tensor, "2 candidate"], count: int) -> Odds:
    """Compute `tilted_odds`, from what `with_room` returns, without waiting for the device."""
    probabilities, room = both
    total, whole = both.sum(1)
    tilt = (count - total) / whole
    tilted = torch.addcmul(probabilities, room, tilt)
    # Both odds are computed, since a branch would make the host wait for the tilt.
    return torch.where(tilt.abs() <= 1.0, tilted, inclusion_odds(probabilities, count))


def draw_exactly(odds: Odds, count: int, generator: torch.Generator) -> RowIndices:
    """Draw exactly `count` distinct rows, each with its own odds of being drawn.

    This is systematic sampling: rows lie on a line in random order, each as long as its odds.
    Points lie 1 apart on this line, from a random start. Each point draws the row that it falls on.

    Args:
        odds: each row's odds of being drawn, in [0, 1]. Their sum is `count`.
        count: number of rows to draw.
        generator: the source of all random numbers, on the odds' device.

    Returns:
        The positions of the drawn rows, ascending. There are `count`, however the odds are rounded.
    """
    count = check_whole("count", count, least=0, most=odds.shape[0])
    return take_exactly(odds, count, generator)


def take_exactly(odds: Odds, count: int, generator: torch.Generator) -> RowIndices:
    order = torch.randperm(odds.shape[0], generator=generator, device=odds.device)
    offset = torch.rand(1, generator=generator, device=odds.device, dtype=odds.dtype)
    if odds.device.type == "cpu":  # in NumPy, a draw takes 25 to 50 us less
        places = order.numpy()
        shuffled = odds.numpy()[places]  # in random order, so that neighbours are drawn apart
        # After subtracting the offset, points lie at whole numbers. A row spans (end - odds, end]
        # and is drawn if this interval holds a whole number. Odds are at most 1, so none holds two.
        ends = shuffled.cumsum() - float(offset)
        taken = np.empty(len(places), dtype=bool)
        taken[places] = np.floor(ends) > ends - shuffled
        rows = taken.nonzero()[0]  # ascending, and cheaper than sorting
        if len(rows) == count:  # else the float64 sum was off by 1e-13 and lost or added a point
            return torch.from_numpy(rows)
    return _take_points(odds, order, offset, count)


def _take_points(odds: Odds, order: Tensor, offset: Tensor, count: int) -> RowIndices:
    shuffled = odds.take(order)
    # How far a row's end is beyond the last point. The row takes this point if it began before it.
    beyond = (shuffled.cumsum(0) - offset).remainder(1.0)
    # Rows that take a point rank first, and then those that missed one by least. So the count is
    # right even if a sum that is off by 1e-13 loses or adds a point.
    picked = (shuffled - beyond).topk(count, sorted=False).indices
    return order.take(picked).sort().values


def draw_coins(odds: Odds, generator: torch.Generator) -> RowIndices:
    """Keep each row by its own coin toss. The host waits for the device to learn how many."""
    # In float64, like the odds: float32 coins are multiples of 2^-24, so they are 0 too often.
    coins = torch.rand(odds.shape[0], generator=generator, device=odds.device, dtype=torch.float64)
    return (coins < odds).nonzero().flatten()


def draw_uniformly(
    size: int, count: int, generator: torch.Generator, device: torch.device
) -> RowIndices:
    """Draw `count` distinct rows out of `size`, all equally likely; return them in order."""
    order = torch.randperm(size, generator=generator, device=device)
    return order[:count].sort().values
