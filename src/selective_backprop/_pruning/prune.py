"""Keep a part of a data set, chosen once by the scores of its examples."""

from typing import Literal, TypeAlias

from torch import Tensor

from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._core.options import NamedOption, check_number, choose
from selective_backprop._core.types import Int, Num
from selective_backprop._pruning.example_scores import ExampleScores
from selective_backprop._sampling.subset import Subset


class Keep(NamedOption):
    """Which examples of a data set pruning keeps.

    `HIGHEST` keeps a share with the highest scores, `LOWEST` one with the lowest; `WINDOW` keeps
    those between two percentiles, so that the very hardest, which may be mislabelled, can go too.
    """

    HIGHEST = "highest"
    LOWEST = "lowest"
    WINDOW = "window"


KeepName: TypeAlias = Literal["highest", "lowest", "window"]


def prune(
    scores: ExampleScores | Num[Tensor, " example"],
    keep: float | None = None,
    which: Keep | KeepName = Keep.HIGHEST,
    *,
    window: tuple[float, float] | None = None,
    labels: Int[Tensor, " example"] | None = None,
) -> Subset:
    """Keep the part of a data set whose scores are highest, lowest, or within a window.

    The choice is deterministic. Of examples that tie at the edge, `"highest"` and `"lowest"` keep
    those of lower index; `"window"` counts those as lower.

    Args:
        scores: of every example, from `el2n_scores`, `grand_scores` or anything else.
        keep: the share to keep, in (0, 1]; at least one example is kept. Not for `"window"`.
        which: `"highest"`, `"lowest"` or `"window"`.
        window: the shares of lower scores at which the window begins and ends, such as
            `(0.1, 0.6)`; `(0.0, 0.95)` drops the hardest twentieth. For `"window"` alone.
        labels: the class of every example; if given, a warning names the classes of which no
            example is kept.

    Returns:
        The kept part, with all scores and their cost.

    Raises:
        ConfigurationError: if a value is out of range, if `keep` or `window` is missing or is not
            for this `which`, or if the scores are not one finite number per example.

    Source:
        Paul et al. 2021, arXiv:2107.07075: sections 3 (the highest scores) and 4 (a sliding
        window of percentiles).

    Example:
        >>> import torch
        >>> prune(torch.tensor([0.1, 0.9, 0.5, 0.7]), 0.5).indices
        tensor([1, 3])
        >>> prune(torch.tensor([0.1, 0.9, 0.5, 0.7]), which="window", window=(0, 0.75)).indices
        tensor([0, 2, 3])
    """
    which = choose("which", which, Keep)
    source, cost = "given scores", 0.0
    if isinstance(scores, ExampleScores):
        source, cost, scores = scores.source, scores.cost, scores.scores
    ranks = isinstance(scores, Tensor) and scores.ndim == 1 and len(scores) > 0
    if not ranks or scores.isnan().any():
        raise ConfigurationError(
            "scores must be a tensor of one finite number for each example of the data set, or "
            f"what el2n_scores or grand_scores return; got {_found(scores)}"
        )
    examples = scores.shape[0]
    if which is Keep.WINDOW:
        start, stop = _window(keep, window, examples)
        order = scores.sort(stable=True).indices[start:stop]
        kept = f"kept those from {_percent(start / examples)} to {_percent(stop / examples)}"
    else:
        if window is not None:
            raise ConfigurationError(
                f"window={window} is for which='window', and this is which={str(which)!r}. Write "
                f"prune(scores, which='window', window={window}), or keep= alone."
            )
        share = check_number("keep", keep, "0.5 keeps a half", above=0, most=1)
        count = max(1, round(share * examples))
        # A stable sort leaves ties in the order of their indices.
        order = scores.sort(stable=True, descending=which is Keep.HIGHEST).indices[:count]
        kept = f"kept the {which} {_percent(count / examples)}"
    subset = Subset(order, examples, scores=scores, source=f"{source}, {kept}", cost=cost)
    if labels is not None:
        _warn_of_lost_classes(labels, subset)
    return subset


def _window(
    keep: float | None, window: tuple[float, float] | None, examples: int
) -> tuple[int, int]:
    """Return the ranks at which the window begins and ends."""
    if keep is not None:
        raise ConfigurationError(
            f"keep={keep} is not for which='window', whose ends say how much is kept. Write "
            "prune(scores, which='window', window=(low, high))."
        )
    try:
        low, high = (check_number("", share, most=1) for share in window or ())
        fits = low < high
    except (TypeError, ValueError):  # `window` does not hold two shares
        fits = False
    if not fits:
        raise ConfigurationError(
            f"window={window!r}: two shares are needed, 0 <= low < high <= 1; (0.0, 0.95) "
            "drops the twentieth with the highest scores"
        )
    start, stop = round(low * examples), round(high * examples)
    if start == stop:
        raise ConfigurationError(f"window={window} keeps none of {examples} examples: widen it")
    return start, stop


def _warn_of_lost_classes(labels: Tensor, subset: Subset) -> None:
    if labels.is_floating_point() or tuple(labels.shape) != (subset.examples,):
        raise ConfigurationError(
            f"labels must be a whole number for each of {subset.examples} examples, got "
            f"{_found(labels)}"
        )
    labels = labels.to("cpu")
    lost = sorted(set(labels.unique().tolist()) - set(labels[subset.indices].unique().tolist()))
    if lost:
        named = ", ".join(map(str, lost[:10])) + (f" and {len(lost) - 10} more" * (len(lost) > 10))
        warn(
            f"no example of class {named} is kept, so nothing can be learned of it. Keep a "
            "larger share, or choose examples by another score or window.",
        )


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _found(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    missing = f", of which {int(value.isnan().sum())} are NaN" if value.isnan().any() else ""
    return f"{value.dtype} of shape {tuple(value.shape)}{missing}"
