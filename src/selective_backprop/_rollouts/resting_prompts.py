"""Draw prompts that taught nothing lately less often, so that fewer answers are generated."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.options import check_number, check_whole
from selective_backprop._core.saved_state import LAST_EPOCH, MOST, Saved
from selective_backprop._pipeline.selection_buffer import mix_seeds
from selective_backprop._rollouts.answers import informative


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

    Raises:
        ConfigurationError: if an option is out of its range.

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

        Raises:
            ConfigurationError: if a prompt's number is negative, or too high for this sampler.
            LossError: if there is not one row of rewards for each prompt.
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
        """Restore what `state_dict()` returned; continue with the next pass.

        Raises:
            ConfigurationError: if the state is damaged, or has another number of prompts. After an
                error, this object is unchanged.
        """
        visits, passes = Saved(state).fields("visits", "passes")
        shape, passes = tuple(self._visits.shape), passes.whole(most=LAST_EPOCH)
        read = visits.tensor(torch.int64, shape=shape, least=0, most=MOST)
        self._visits, self._passes = read.to("cpu", copy=True), passes
