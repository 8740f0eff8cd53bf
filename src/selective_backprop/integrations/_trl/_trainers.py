"""The trainers: completions without a gradient are left out where TRL lets a subclass do so."""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer, RLOOTrainer
from trl.models.utils import disable_gradient_checkpointing

from selective_backprop._step.rollouts import informative
from selective_backprop.integrations._trl._checks import check_rollouts, check_trainer, find_loss
from selective_backprop.integrations._trl._regrouping import (
    Batch,
    own_tokens,
    regroup,
    with_gradient,
)

OLD = ("old_per_token_logps", "old_logps")  # of GRPO, and of RLOO


class NonzeroRollouts:
    """Train as TRL's GRPOTrainer or RLOOTrainer does, without completions that have no gradient.

    Such are the completions of a prompt whose rewards are all equal, those that no reward function
    scores, and those of which no token counts. They are found by their rewards, which are compared
    exactly: where TRL's mean of equal rewards is rounded, its advantages are not quite 0, and here
    they are.

    An update's other completions are dealt out over as few of its micro-batches as they fill, and
    the rest of its micro-batches cost nothing. If none has a gradient, one is trained on, so that
    momentum and weight decay act as they do without. Weights are those of TRL's trainer to
    rounding; with dropout they are not, since other masks are drawn. On several processes each
    trains on as many completions as the one that has most.

    Logged metrics of the loss (entropy, clipped shares) are those of the completions that are
    trained on, and are called `trained/…`, as are the means of what corrects vLLM's
    log-probabilities. Three counts, over all processes since training began or was resumed, are
    added: `rollouts/tokens` and `rollouts/generated`, the policy's own tokens and completions, and
    `rollouts/trained`, completions trained on, once per iteration.

    `NonzeroGRPOTrainer` and `NonzeroRLOOTrainer` are ready-made. To combine it with a subclass of
    your own, name it first: `class Mine(NonzeroRollouts, MyGRPOTrainer)`.

    Raises:
        ConfigurationError: if a term of the loss needs every completion (a KL penalty, entropy, a
            router's auxiliary loss), with DeepSpeed or FSDP, and at the first rollouts if they hold
            images.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        check_trainer(self)
        self._scoring = False
        self._all_rewards = torch.empty(0)
        self._counts = dict.fromkeys(("tokens", "generated", "trained"), 0)

    # TRL computes old log-probabilities before it knows the rewards, and hands them on. Zeros stand
    # for them until it is known which are needed.

    def _get_per_token_logps_and_entropies(
        self, model: Any, ids: Tensor, mask: Tensor, tokens: int, *args: Any, **options: Any
    ) -> Any:
        if self._scoring:
            return torch.zeros(len(ids), tokens, device=ids.device), None, None
        return super()._get_per_token_logps_and_entropies(
            model, ids, mask, tokens, *args, **options
        )

    def _calculate_rewards(self, *args: Any, **options: Any) -> Tensor:
        self._all_rewards = super()._calculate_rewards(*args, **options)
        return self._all_rewards

    def _generate_and_score_completions(self, inputs: Any) -> Batch:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        self._scoring = True
        try:
            rollouts = super()._generate_and_score_completions(inputs)
        finally:
            self._scoring = False
        check_rollouts(rollouts)
        for name in [name for name in self._metrics["train"] if name.startswith("sampling/")]:
            del self._metrics["train"][name]  # of the zeros
        equal, noise = self._equal_rewards()
        first = self.accelerator.process_index * len(inputs)
        advantages = rollouts["advantages"]
        equal = equal[first : first + len(inputs)].view(-1, *[1] * (advantages.ndim - 1))
        rollouts["advantages"] = advantages.masked_fill(equal & (advantages.abs() <= noise), 0)
        return rollouts

    def _equal_rewards(self) -> tuple[Tensor, float]:
        """Return the rows of equal rewards, `[row]`, and how far off 0 rounding takes advantages.

        Advantages beyond that are not of TRL's making, but a subclass's own.
        """
        rewards = self._all_rewards * self.reward_weights.to(self._all_rewards.device)
        if getattr(self, "multi_objective_aggregation", None) != "normalize_then_sum":
            unscored = self._all_rewards.isnan().all(1, keepdim=True)
            rewards = rewards.nansum(1, keepdim=True).masked_fill(unscored, math.nan)
        if limits := getattr(self, "reward_clip_range", None):
            rewards = rewards.clamp(*limits)
        group, reward = self.num_generations, rewards.shape[1]
        by_group = rewards.view(-1, group, reward).transpose(1, 2).reshape(-1, group)
        informed = informative(by_group).view(-1, reward, group).any(1).flatten()
        highest = max(1.0, float(rewards.nan_to_num().abs().max()))
        # TRL divides by a deviation of at least 1e-4.
        return ~informed, 1e4 * group * torch.finfo(rewards.dtype).eps * highest

    def _prepare_inputs(self, inputs: Any) -> Batch:
        before = self._buffered_inputs
        batch = super()._prepare_inputs(inputs)
        if not self.model.training:
            return batch
        if self._buffered_inputs is not before:
            self._buffered_inputs = self._regroup(self._buffered_inputs)
        batch = self._buffered_inputs[self._step % self.args.steps_per_generation]
        self._counts["trained"] += len(batch["advantages"]) * self.accelerator.num_processes
        for name, count in self._counts.items():
            self._metrics["train"][f"rollouts/{name}"] = [count]
        return batch

    def _regroup(self, batches: list[Batch]) -> list[Batch]:
        # Neither an update nor what is generated at once ends within so many micro-batches.
        length = math.gcd(len(batches), self.args.gradient_accumulation_steps)
        runs = [batches[start : start + length] for start in range(0, len(batches), length)]
        kept = (
            torch.stack([with_gradient(batch).sum() for batch in batches]).view(-1, length).sum(1)
        )
        tokens = torch.stack([own_tokens(batch).sum() for batch in batches]).sum(0, keepdim=True)
        found = self.accelerator.gather(torch.cat([kept, tokens])).view(-1, len(runs) + 1)
        *most, _ = found.max(0).values.clamp(min=1).tolist()
        self._counts["tokens"] += int(found[:, -1].sum())
        size, ranks = len(batches[0]["advantages"]), self.accelerator.num_processes
        self._counts["generated"] += len(batches) * size * ranks
        loss, multiple = find_loss(self), getattr(self, "pad_to_multiple_of", None) or 1
        return [
            batch
            for run, count in zip(runs, most, strict=True)
            for batch in regroup(run, count, loss, multiple, self._with_old)
        ]

    def _with_old(self, batch: Batch) -> Batch:
        """Return completions with their log-probabilities by the policy that made them."""
        name = next((name for name in OLD if name in batch), None)
        if name is None:
            return batch
        completions, mask = batch["completion_ids"], batch["completion_mask"]
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
        ):
            logs, _, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([batch["prompt_ids"], completions], 1),
                torch.cat([batch["prompt_mask"], mask], 1),
                completions.shape[1],
                batch_size=self.args.per_device_train_batch_size,
            )
        batch |= {name: logs if name == "old_per_token_logps" else (logs * mask).sum(1)}
        if "importance_sampling_ratio" in batch:
            batch["importance_sampling_ratio"] = self._ratios(logs, batch)
        return batch

    def _ratios(self, logs: Tensor, batch: Batch) -> Tensor:
        """Return by what TRL corrects the log-probabilities of vLLM, as it does, and log it."""
        apart, mask = logs - batch["sampling_per_token_logps"], own_tokens(batch)
        known = apart[(mask != 0) & ~apart.isnan()].abs()
        level, _, cut = self.vllm_importance_sampling_mode.partition("_")
        apart = (apart * mask).nan_to_num(nan=0.0)
        ratios = (apart.sum(1, keepdim=True) if level == "sequence" else apart).exp()
        low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
        if cut == "truncate":
            ratios = ratios.clamp(low, high)
        else:
            outside = (ratios < (-math.inf if low is None else low)) | (
                ratios > (math.inf if high is None else high)
            )
            ratios = ratios.masked_fill(outside, 0.0)
        counted = ratios.flatten() if level == "sequence" else ratios[mask != 0]
        for name, found in (
            ("sampling_logp_difference", known),
            ("importance_sampling_ratio", counted),
        ):
            sums = torch.stack([found.sum(), found.new_tensor(float(found.numel()))])
            total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
            self._metrics["train"][f"trained/sampling/{name}/mean"].append(total / max(1.0, count))
        return ratios

    def compute_loss(
        self,
        model: Any,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return TRL's loss of the completions that are left; without any, a 0 of no gradient."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if not len(inputs["advantages"]):
            return inputs["advantages"].new_zeros((), requires_grad=True)
        noted, self._metrics["train"] = self._metrics["train"], defaultdict(list)
        try:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            found, self._metrics["train"] = self._metrics["train"], noted
            for name, values in found.items():
                noted[f"trained/{name}"] += values


class NonzeroGRPOTrainer(NonzeroRollouts, GRPOTrainer):
    """TRL's `GRPOTrainer` without completions that have no gradient; see `NonzeroRollouts`."""


class NonzeroRLOOTrainer(NonzeroRollouts, RLOOTrainer):
    """TRL's `RLOOTrainer` without completions that have no gradient; see `NonzeroRollouts`.

    Its KL penalty is a part of the rewards, so that hardly two are equal: `beta=0.0` is needed.
    """
