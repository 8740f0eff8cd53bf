"""Choose answers to train on, by the rewards of all answers to their prompt."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.options import check_number, check_whole


def informative(rewards: Tensor, *, pass_rate: tuple[float, float] | None = None) -> Tensor:
    """Return which answers to train on: all answers to a prompt if their rewards differ.

    If all answers to a prompt got equal rewards, their GRPO advantages are 0, so that nothing is
    learned from them. Rewards are compared exactly. Do not test advantages for 0 instead: the mean
    of eight rewards of 0.1 may differ from 0.1 in its last bit, and then advantages are not 0.

    Args:
        rewards: numbers, `[prompt, answer]`; NaN for an answer without a reward, which is left out.
        pass_rate: lowest and highest mean reward of the prompts to keep, such as `(0.2, 0.8)`. This
            also leaves out prompts hardly ever or nearly always solved, which changes training.

    Returns:
        Booleans, `[prompt, answer]`, on the device of `rewards`. Flatten them for `NonzeroRows`.

    Raises:
        LossError: if `rewards` is not a tensor with two axes.
        ConfigurationError: if `pass_rate` is not a pair of finite numbers with the lower one first.

    Example:
        >>> import torch, selective_backprop as sb
        >>> sb.informative(torch.tensor([[1.0, 0.0, 1.0], [0.1, 0.1, 0.1]])).tolist()
        [[True, True, True], [False, False, False]]
    """
    groups = _as_groups(rewards)
    missing = groups.isnan()
    if rewards.is_floating_point():
        lowest, highest = rewards.where(~missing, math.inf), rewards.where(~missing, -math.inf)
        kept = lowest.amin(1) < highest.amax(1)
    else:  # float32 would round large ones
        kept = (rewards != rewards[:, :1]).any(1)
    if pass_rate is not None:
        low, high = check_band(pass_rate)
        mean = groups.nanmean(1)
        kept &= (low <= mean) & (mean <= high)
    return kept[:, None] & ~missing


def max_variance(rewards: Tensor, keep: int) -> Tensor:
    """Return, for each prompt, the `keep` answers whose rewards have the highest variance.

    These are some answers with the highest and some with the lowest rewards. Compute advantages
    from the mean and the standard deviation of the kept answers' rewards only.

    Args:
        rewards: finite numbers, `[prompt, answer]`.
        keep: number of answers to keep per prompt, from 1 to the number of answers per prompt.

    Returns:
        Booleans, `[prompt, answer]`, on the device of `rewards`; in each row `keep` are True.

    Raises:
        LossError: if `rewards` is not a finite tensor with two axes.
        ConfigurationError: if `keep` is out of its range.

    Source:
        Xu et al. 2025, arXiv:2504.13818 (PODS).

    Example:
        >>> import torch, selective_backprop as sb
        >>> sb.max_variance(torch.tensor([[0.0, 0.5, 1.0, 0.4]]), 2).tolist()
        [[True, False, True, False]]
    """
    rewards = _as_groups(rewards)
    answers = rewards.shape[1]
    keep = int(check_whole("keep", keep, most=answers))
    if not rewards.isfinite().all():
        raise LossError("rewards are not finite, but max_variance compares all answers' rewards")
    ordered, order = (rewards - rewards.mean(1, keepdim=True)).sort(1, descending=True)
    # First the sums over the n highest rewards, for each n from 0. From these follow the sums over
    # the k highest and the keep - k lowest rewards, for each k from 0.
    sums, squares = (functional.pad(part.cumsum(1), (1, 0)) for part in (ordered, ordered**2))
    highest = torch.arange(keep + 1, device=rewards.device)
    rest = answers - keep + highest  # where the lowest rewards begin
    total, square = (part[:, highest] + part[:, -1:] - part[:, rest] for part in (sums, squares))
    best = (square - total**2 / keep).argmax(1, keepdim=True)
    places = torch.arange(answers, device=rewards.device)
    chosen = (places < best) | (places >= answers - keep + best)
    return torch.zeros_like(chosen).scatter_(1, order, chosen)


def _as_groups(rewards: Any) -> Tensor:
    if not isinstance(rewards, Tensor) or rewards.ndim != 2 or not rewards.shape[1]:
        found = f"shape {tuple(rewards.shape)}" if isinstance(rewards, Tensor) else "no tensor"
        needed = "`[prompt, answer]` is needed, such as rewards.view(-1, answers)"
        raise LossError(f"got rewards of {found}: a tensor {needed}")
    return rewards if rewards.is_floating_point() else rewards.float()


def check_band(band: Any) -> tuple[float, float]:
    """Return the lowest and the highest mean reward of prompts to keep; refuse other values."""
    if not isinstance(band, tuple | list) or len(band) != 2:
        raise ConfigurationError(f"pass_rate={band!r:.60}: a pair is needed, such as (0.2, 0.8)")
    low, high = (check_number("pass_rate", each, least=-math.inf) for each in band)
    if low > high:
        raise ConfigurationError(f"pass_rate={band}: the lower number comes first")
    return low, high
