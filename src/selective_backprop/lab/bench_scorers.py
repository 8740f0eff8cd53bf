"""What `bench` compares: cheap scorers by name, and strategies that score with them."""

from collections.abc import Collection

import torch

import selective_backprop as sb
from selective_backprop.lab.precision import Precision

STALE = 3


def cheap_scorers(
    side: int, device: torch.device, precision: Precision = Precision.FP32
) -> dict[str, sb.scorers.AbstractScorer]:
    """Return the scorers that can be timed, by name.

    Names of a precision score in that, all others in the training's. What would be the same twice
    has one name.

    Args:
        side: of an image, in pixels.
        device: where to score. What gains time but no work can be told apart on a GPU alone.
        precision: of the training.
    """
    exact, full = exact_scorer(precision), precision is Precision.FP32
    found: dict[str, sb.scorers.AbstractScorer] = {"forward": exact}
    if not full:
        found["fp32"] = sb.scorers.Forward()
    found["int8"] = sb.scorers.Int8(sb.scorers.Forward(), check=None)
    if full:
        found["bf16"] = sb.scorers.LowPrecision(sb.scorers.Forward(), check=None)
    if side >= 16:
        found["half-resolution"] = sb.scorers.LowResolution(exact, check=None)
    if device.type == "cuda":
        # One batch ahead, since each is a whole window.
        found["pipelined"] = sb.scorers.Pipelined(exact, every=8, ahead=1, check=None)
    return found


def exact_scorer(precision: Precision) -> sb.scorers.AbstractScorer:
    """Return the scorer that does what a training's own forward pass does."""
    exact, dtype = sb.scorers.Forward(), precision.dtype
    return exact if dtype is None else sb.scorers.LowPrecision(exact, dtype, check=None)


def strategies(rate: float, precision: Precision, timed: Collection[str]) -> dict[str, sb.Strategy]:
    """Return the strategies whose epochs are timed, by name.

    Args:
        rate: share of the candidates that selection keeps.
        precision: of the training.
        timed: names of the scorers that can be timed here; the cheapest have strategies.
    """
    exact = exact_scorer(precision)
    found = {
        "traditional": sb.traditional(),
        "random-backprop": sb.random_backprop(rate),
        "selective-backprop": sb.selective_backprop(rate, scorer=exact),
        "stale-sb": sb.stale_sb(rate, epochs=STALE, scorer=exact),
        "recorded-sb": sb.recorded_sb(rate),
    }
    if "int8" in timed:
        scorer = sb.scorers.Int8(sb.scorers.Forward(), check=None)
        found["int8-sb"] = sb.selective_backprop(rate, scorer=scorer)
        found["int8-stale-sb"] = sb.stale_sb(rate, epochs=STALE, scorer=scorer)
    if "pipelined" in timed:
        scorer = sb.scorers.Pipelined(exact, every=8, ahead=1, check=None)
        found["pipelined-sb"] = sb.selective_backprop(rate, scorer=scorer)
    return found
