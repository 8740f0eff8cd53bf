"""DUAL: a subset of what is difficult and uncertain early in training, drawn for its size."""

import torch
from torch import Tensor
from torch.distributions import Beta

import selective_backprop as sb


def dual_scores(probabilities: Tensor, window: int = 10) -> Tensor:
    """Return each example's mean over windows of epochs of deviation times (1 - mean).

    Args:
        probabilities: of each example's true class, `[epoch, example]`, as of `exp(-loss)`.
        window: length of a window, in epochs.
    """
    windows = probabilities.double().unfold(0, window, 1)  # [start, example, epoch]
    return (windows.std(2) * (1.0 - windows.mean(2))).mean(0)


def dual(
    probabilities: Tensor, keep: float = 0.3, *, window: int = 10, c_d: float = 4.0, seed: int = 0
) -> sb.Strategy:
    """Train on examples drawn by their `dual_scores` and, the fewer are kept, the easier.

    The cost is that of the training in which the probabilities were recorded, an epoch for each of
    their rows. The paper takes the first 30 epochs.

    Source:
        Cho et al. 2025, "Lightweight Dataset Pruning without Full Training via Example Difficulty
        and Prediction Uncertainty", ICML 2025, arXiv:2502.06905, abstract: the DUAL score "aims to
        identify important samples from the early training stage by considering both example
        difficulty and prediction uncertainty"; "we further propose a pruning ratio-adaptive
        sampling using Beta distribution". The formulas are those of the authors' code (`dual`,
        `beta_sampling`), the defaults those of its README: "--subset_rate 0.3", "--c_d 4".
    """
    scores, mean = dual_scores(probabilities, window), probabilities.double().mean(0)
    hardest = mean[scores.topk(min(10, len(mean))).indices].mean()
    b = 15.0 * (1.0 - hardest) * (1.0 - (1.0 - keep) ** c_d)
    density = Beta(16.0 - b, b).log_prob(mean.clamp(1e-6, 1.0 - 1e-6)).exp()
    count, generator = int(keep * len(mean)), torch.Generator().manual_seed(seed)
    indices = torch.multinomial(density * scores, count, generator=generator)
    cost = float(len(probabilities))
    return sb.pruned(sb.Subset(indices, len(mean), scores=scores, source="DUAL", cost=cost))
