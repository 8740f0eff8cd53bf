"""Choose answers to train on, and prompts to draw, by the rewards of all answers to a prompt.

All raise a `LossError` for rewards of a wrong shape, else a `ConfigurationError`.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Sampler

from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.options import check_number, check_whole
from selective_backprop._core.saved_state import LAST_EPOCH, MOST, Saved
from selective_backprop._pipeline.selection_buffer import mix_seeds


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
    if not isinstance(band, tuple | list) or len(band) != 2:
        raise ConfigurationError(f"pass_rate={band!r:.60}: a pair is needed, such as (0.2, 0.8)")
    low, high = (check_number("pass_rate", each, least=-math.inf) for each in band)
    if low > high:
        raise ConfigurationError(f"pass_rate={band}: the lower number comes first")
    return low, high


class RestingPrompts(Sampler[int]):
    """Draw prompts in random order; if a prompt taught nothing lately, draw it less often.

    If all answers to a prompt get equal rewards, the prompt teaches nothing. Each time, its odds
    (the probability that it is drawn in the next pass) are multiplied by `explore`, but they never
    fall below `least`, so every prompt comes back. Once a prompt's answers get different rewards,
    its odds are 1 again. Pass this object as `sampler=` to the data loader of the prompts.

    With several ranks, build a sampler with the same arguments on each rank, and record the rewards
    of all ranks in each sampler. Let each rank train on its own part of the drawn prompts.

    Args:
        prompts: number of prompts.
        explore: number in (0, 1] that multiplies a prompt's odds each time it teaches nothing.
        least: the lowest odds, in (0, 1].
        seed: seed of the order and the draws.

    Source:
        Zheng et al. 2025, arXiv:2506.02177 (GRESO). GRESO has one factor for prompts that are
        always solved and one for those never solved, and adapts both. This class has a fixed one.
    """

    def __init__(
        self, prompts: int, *, explore: float = 0.5, least: float = 0.5, seed: int = 0
    ) -> None:
        self._visits = torch.zeros(int(check_whole("prompts", prompts)), dtype=torch.int64)
        self._explore = float(check_number("explore", explore, above=0, most=1))
        self._least = float(check_number("least", least, above=0, most=1))
        self._seed = int(check_whole("seed", seed, least=0))
        self._passes = 0

    @property
    def odds(self) -> Tensor:
        """The probability that each prompt is drawn in the next pass, `[prompt]`."""
        return (self._explore**self._visits).clamp(min=self._least)

    def __iter__(self) -> Iterator[int]:
        """Yield the prompts of one pass. If none is drawn, yield the one with the highest odds."""
        generator = torch.Generator().manual_seed(mix_seeds(self._seed, self._passes))
        self._passes += 1
        odds = self.odds
        order = torch.randperm(len(odds), generator=generator)
        kept = torch.rand(len(odds), generator=generator) < odds
        drawn = order[kept[order]]
        yield from (drawn if len(drawn) else odds.argmax()[None]).tolist()

    def record(self, prompts: Tensor, rewards: Tensor) -> None:
        """Note the rewards of the answers to some prompts.

        You may pass a prompt several times in a call, and each time counts. If it taught something
        at least once in that call, its odds return to 1.

        Args:
            prompts: the index of each prompt, where 0 is the first prompt, `[prompt]`.
            rewards: one reward for each answer, `[prompt, answer]`: a prompt taught something if
                its rewards differ. Or Booleans, `[prompt]`, True if the prompt taught something.
        """
        told = rewards.dtype == torch.bool and rewards.ndim == 1
        taught = (rewards if told else informative(rewards).any(1)).cpu()
        prompts, count = prompts.cpu(), len(self._visits)
        if len(prompts) != len(taught):
            raise LossError(f"got rewards of {len(taught)} prompts for {len(prompts)} prompts")
        if len(prompts) and not 0 <= prompts.min() <= prompts.max() < count:
            raise ConfigurationError(
                f"got prompts {int(prompts.min())} to {int(prompts.max())}, but there are only "
                f"prompts 0 to {count - 1}"
            )
        learned = torch.bincount(prompts[taught], minlength=count) > 0
        visits = self._visits + torch.bincount(prompts, minlength=count)
        self._visits = visits.masked_fill(learned, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return how many times in a row each prompt taught nothing, and how many passes began."""
        return {"visits": self._visits.clone(), "passes": self._passes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict()` returned, with as many prompts; go on with the next pass."""
        visits, passes = Saved(state).fields("visits", "passes")
        shape, passes = tuple(self._visits.shape), passes.whole(most=LAST_EPOCH)
        read = visits.tensor(torch.int64, shape=shape, least=0, most=MOST)
        self._visits, self._passes = read.to("cpu", copy=True), passes
