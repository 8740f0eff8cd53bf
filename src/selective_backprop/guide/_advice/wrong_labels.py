"""Estimate how many labels are wrong, with a classifier that did not see them."""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot, relu

from selective_backprop._core.types import Float, Float64, Int64

FEATURES = 1000
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)  # of the ridge regression, times the number of examples
SUREST = 0.1  # share of each predicted class that counts as the surest
LEAST_SURE = 500  # surest examples, if a tenth of all would be fewer
MOST_SURE = 0.35  # share of each predicted class, at most
WIDER, HARDLY = 3, 0.05  # among 3 times as many sure ones, 0.05 more may disagree
BY_CHANCE = 0.5  # times the errors of always guessing the largest class; more means not learned
LEAST_EXAMPLES, MOST_CLASSES = 200, 1000

WrongLabels = tuple[float | None, float | None, float | None]
UNKNOWN: WrongLabels = (None, None, None)


def estimate_wrong_labels(
    numbers: Float[Tensor, "example number"], labels: Int64[Tensor, " example"]
) -> WrongLabels:
    """Estimate how many labels are wrong, from inputs as numbers and their labels.

    A ridge regression on random features predicts each label from all other examples. Among the
    examples with the surest predictions, every label that disagrees with its prediction counts as
    wrong. Wrong labels are assumed to be as frequent in the rest. If labels disagree much more
    often among three times as many examples, classes are hard to tell apart, and only an upper
    bound is known. The same holds if even the surest predictions have more than half of the errors
    of always guessing the largest class.

    Returns the share of wrong labels (None for hard classes), its standard error, and an upper
    bound. All are None for fewer than two classes or more than `MOST_CLASSES`, or fewer than
    `LEAST_EXAMPLES` examples.

    Source:
        Patrini et al. 2017, arXiv:1609.03683, section 4.2, also estimate noise where predictions
        are surest. They take one example of each class, and the probabilities of a network.
    """
    classes, labels = labels.unique(return_inverse=True)
    if not (2 <= len(classes) <= MOST_CLASSES and len(labels) >= LEAST_EXAMPLES):
        return UNKNOWN
    best = _left_out_predictions(_features(numbers), labels).topk(2)
    predictions, leads = best.indices[:, 0], best.values[:, 0] - best.values[:, 1]
    # Ranks within each predicted class; the surest example has rank 0.
    order = leads.argsort(descending=True)
    order = order[predictions[order].argsort(stable=True)]
    counts = predictions.bincount(minlength=len(classes))
    starts = counts.cumsum(0) - counts
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order)) - starts[predictions[order]]
    share = max(SUREST, min(MOST_SURE, LEAST_SURE / len(labels)))

    def disagreeing(share: float) -> tuple[float, int]:
        """Return which share of the surest disagrees, weighted by class, and how many they are."""
        sure = ranks < (share * counts).ceil()[predictions]
        of_class = predictions[sure].bincount(minlength=len(classes)).clamp(min=1)
        wrong = (predictions != labels)[sure].double()
        wrong = predictions[sure].bincount(wrong, minlength=len(classes)) / of_class
        return float((wrong * counts).sum() / len(labels)), int(sure.sum())

    found, seen = disagreeing(share)
    further, _ = disagreeing(min(1.0, WIDER * share))
    # Counts one more disagreement, so that the error is above 0 even if nothing disagrees.
    odds = (found * seen + 1) / (seen + 2)
    error = math.sqrt(odds * (1 - odds) / seen)
    chance = 1 - float(labels.bincount().max()) / len(labels)
    known = further - found <= HARDLY and found <= BY_CHANCE * chance
    return found if known else None, error, min(1.0, found + 2 * error)


def _features(numbers: Float[Tensor, "example number"]) -> Float64[Tensor, "example feature"]:
    """Return random features of the inputs, from a random layer of rectified units."""
    numbers = normalize(numbers.nan_to_num(0.0, 0.0, 0.0))
    generator = torch.Generator().manual_seed(0)
    size = max(10, min(FEATURES, len(numbers) // 4))
    weights = torch.randn(numbers.shape[1], size, generator=generator)
    biases = torch.randn(size, generator=generator) / math.sqrt(max(1, numbers.shape[1]))
    features = relu(numbers @ weights + biases)
    features = (features - features.mean(0)) / features.std(0).clamp(min=1e-6)
    return torch.cat([features, torch.ones(len(features), 1)], 1).double()


def _left_out_predictions(
    features: Float64[Tensor, "example feature"], labels: Int64[Tensor, " example"]
) -> Float64[Tensor, "example class"]:
    """Return each example's class scores from the best ridge regression on all others."""
    wanted = one_hot(labels).double()
    values, vectors = torch.linalg.eigh(features.T @ features)
    turned = features @ vectors
    fitted = turned.T @ wanted
    found, least = wanted, math.inf
    for penalty in PENALTIES:
        shrunk = turned / (values.clamp(min=0) + penalty * len(labels))
        own = (shrunk * turned).sum(1, keepdim=True)  # an example's weight in its own prediction
        scores = (shrunk @ fitted - own * wanted) / (1 - own).clamp(min=1e-9)
        error = float((scores - wanted).square().mean())
        if error < least:
            found, least = scores, error
    return found
