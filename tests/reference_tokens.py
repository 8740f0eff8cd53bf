"""Token selection in plain Python, written from Lin et al. 2024, arXiv:2404.07965."""

from collections.abc import Sequence


def select_tokens(
    losses: Sequence[float],
    counts: Sequence[bool],
    rate: float,
    reference: Sequence[float] | None = None,
) -> list[int]:
    """The places of the tokens whose loss, or excess loss, is highest; of ties the first."""
    behind = [0.0] * len(losses) if reference is None else reference
    excess = [loss - other for loss, other in zip(losses, behind, strict=True)]
    asked = [place for place in range(len(losses)) if counts[place]]
    if not asked:
        return []
    hardest = sorted(asked, key=lambda place: -excess[place])
    return sorted(hardest[: max(1, round(rate * len(asked)))])


def mean_of_selected(losses: Sequence[float], places: Sequence[int]) -> float:
    """The loss that is trained on."""
    return sum(losses[place] for place in places) / max(1, len(places))


def gradient(tokens: int, places: Sequence[int]) -> list[float]:
    """Of that mean with respect to each token's loss."""
    return [1 / len(places) if place in places else 0.0 for place in range(tokens)]
