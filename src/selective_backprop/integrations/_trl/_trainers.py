"""TRL's trainers without completions that have no gradient."""

import math
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer, RLOOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from selective_backprop import RestingPrompts, informative
from selective_backprop.integrations._kit import StateFile
from selective_backprop.integrations._trl import _checks as checks
from selective_backprop.integrations._trl import _regrouping as regrouping
from selective_backprop.integrations._trl._regrouping import Batch, PromptStream, own_tokens

# Log-probabilities from the policy that generated, in GRPO and in RLOO, and from the reference.
LOGS = ("old_per_token_logps", "old_logps", REFERENCE := "ref_per_token_logps")
RATIO = "importance_sampling_ratio"  # by which vLLM's log-probabilities are corrected
NUMBER = "prompt_number"  # a column with each prompt's index, for refills and rest
SAVED = "prompts.pt"  # a file in a checkpoint


class NonzeroRollouts:
    """Train as TRL's GRPOTrainer or RLOOTrainer does, without completions that have no gradient.

    A completion has no gradient if all completions of its prompt get exactly equal rewards, if no
    reward function scores it, or if the loss counts none of its tokens. The others fill as few of
    an update's micro-batches as possible. Without the options below, the trained weights equal
    those of TRL's trainer, up to rounding and dropout masks. If a term of the loss needs every
    completion (a KL penalty, entropy, a router's auxiliary loss), all completions are trained on,
    as in TRL, and you get a warning.

    Metrics of the loss (entropy, clipped shares, importance-sampling ratios for vLLM) cover only
    the completions that are trained on, and are logged as `trained/…`. Counts of all processes are
    logged, since training began or was resumed:

    - `rollouts/tokens` and `rollouts/generated`: tokens and completions that the policy generated;
    - `rollouts/forwarded`: completions whose old or reference log-probabilities were computed;
    - `rollouts/trained`: completions trained on, counted once per iteration;
    - `rollouts/without_kl`: completions whose KL penalty `beta_on="trained"` left out;
    - `rollouts/replayed`: completions that `replay` added to later generation batches.

    For a trainer of your own, write `class Mine(NonzeroRollouts, MyGRPOTrainer)`.

    Args:
        args: positional arguments of TRL's trainer.
        keep: number of completions of each prompt to train on, from 2 to `num_generations`: those
            whose rewards have the highest variance together. Completions that no reward function
            scores come last. Advantages and loss are those of the kept alone. None keeps all.
        pass_rate: lowest and highest mean reward of the prompts to train on, such as `(0.2, 0.8)`,
            as for `informative`. Completions of other prompts get an advantage of 0. None: all.
        refills: how many times, at most, new prompts replace prompts whose completions have no
            gradient, before completions are trained on; 0 or more. Some such prompts may remain.
        rest: an object that draws the prompts, `RestingPrompts(len(train_dataset))`. A prompt whose
            completions had no gradient lately comes less often. Checkpoints hold this object.
        beta_on: completions with a KL penalty: "all", as in TRL, trains on all if `beta` is not 0.
            "trained" changes the objective: it leaves out completions without an advantage, and
            their penalty. Not for RLOO, whose penalty is a part of the rewards.
        mean: "all" is exact: TRL's loss is a mean over all completions generated together, or over
            their tokens. "trained" multiplies it, to be a mean over those that are trained on.
        replay: number of prompts to remember in each process, the latest whose completions had a
            gradient; 0 for none. Drawn at random, they replace prompts without a gradient after the
            refills, with importance ratios to the policy that generated their completions. Every
            training begins without them, also a resumed one.
        replay_age: how many generation batches old a replayed prompt may be.
        options: keyword arguments of TRL's trainer.

    Raises:
        ConfigurationError: if an option is out of its range, or TRL's options do not allow it.
    """

    def __init__(
        self,
        *args: Any,
        keep: int | None = None,
        pass_rate: tuple[float, float] | None = None,
        refills: int = 0,
        rest: RestingPrompts | None = None,
        beta_on: str = "all",
        mean: str = "all",
        replay: int = 0,
        replay_age: int = 4,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        given: dict[str, Any] = {"keep": keep, "pass_rate": pass_rate, "refills": refills}
        given |= {"rest": rest, "replay": replay, "mean": mean}
        self._whole = checks.needs_every_completion(self, given, beta_on)
        if not self._whole:
            checks.check_trainer(self)
        checked = checks.check_options(self, given, replay_age, beta_on)
        self._keep, self._pass_rate, self._refills, self._replay, self._replay_age = checked
        # Prompts whose completions had a gradient, with the number of their generation batch.
        self._buffer: list[tuple[int, Batch]] = []
        self._mean, self._generation, self._scoring = mean, 0, False
        self._all_rewards, self._kept = torch.empty(0), torch.empty(0)
        self._own_tokens = torch.zeros((), dtype=torch.int64, device=self.accelerator.device)
        counted = ["tokens", "generated", "forwarded", "trained"]
        counted += ["without_kl"] * bool(self.beta) + ["replayed"] * bool(replay)
        self._counts = dict.fromkeys(counted, 0)
        self._prompts: PromptStream | None = None
        if rest is None and not self._refills:
            return
        count = len(self.train_dataset)
        self._prompts = PromptStream(
            RestingPrompts(count, explore=1.0, seed=self.args.seed) if rest is None else rest,
            count,
            self.args.generation_batch_size // self.num_generations,
            self.num_generations,
            self.num_iterations * self.args.steps_per_generation,
        )
        self.train_dataset = self.train_dataset.add_column(NUMBER, list(range(count)))
        self._set_signature_columns_if_needed()
        self._signature_columns = [*self._signature_columns, NUMBER]

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as TRL's trainer does; the counts begin at 0, and nothing waits to be replayed."""
        self._counts, self._buffer = dict.fromkeys(self._counts, 0), []
        return super().train(*args, **options)

    def _get_train_sampler(self, *args: Any, **options: Any) -> Any:
        if self._prompts is None:
            return super()._get_train_sampler(*args, **options)
        return self._prompts

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self._prompts is None or not self.args.should_save or self.args.save_only_model:
            return
        over = float(self.state.epoch).is_integer()
        folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
        StateFile(folder / SAVED).save(self._prompts.state_dict(between_epochs=over))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self._prompts is not None and checkpoint is not None:
            self._prompts.load_state_dict(StateFile(Path(checkpoint) / SAVED).load())

    # TRL computes old log-probabilities before it knows the rewards. Here zeros take their place
    # until it is known which of them are needed.

    def _get_per_token_logps_and_entropies(
        self, model: Any, ids: Tensor, mask: Tensor, tokens: int, *args: Any, **options: Any
    ) -> Any:
        if self._scoring:
            return torch.zeros(len(ids), tokens, device=ids.device), None, None
        return super()._get_per_token_logps_and_entropies(
            model, ids, mask, tokens, *args, **options
        )

    def _calculate_rewards(self, *args: Any, **options: Any) -> Tensor:
        rewards = super()._calculate_rewards(*args, **options)
        if not self._scoring:
            return rewards
        self._all_rewards, self._kept = rewards, torch.ones_like(rewards[:, 0], dtype=torch.bool)
        if self._keep is not None:
            groups = self._sum_rewards(rewards).view(-1, self.num_generations)
            self._kept = regrouping.choose(groups, self._keep).flatten()
        return self._rewards_kept()

    def _generate_and_score_completions(self, inputs: Any) -> Batch:
        numbers = [row.pop(NUMBER, 0) for row in inputs]
        if self._whole or not self.model.training:
            return super()._generate_and_score_completions(inputs)
        answers = self.num_generations
        rollouts = self._score(inputs, numbers)
        for _ in range(self._refills):
            lacking = (~regrouping.groups_with_gradient(rollouts, answers)).sum()
            most = int(self.accelerator.gather(lacking).max())
            if not most:
                break
            with self._metrics_as("refills"):
                more = self._refill(most)
            rollouts = regrouping.fill(rollouts, more, answers)
        if self._replay:
            rollouts = self._with_replayed(rollouts)
        if "num_items_in_batch" in rollouts:
            total = self.accelerator.gather(own_tokens(rollouts).sum()).sum()
            rollouts["num_items_in_batch"] = total
        rollouts["loss_scale"] = self._loss_scale(rollouts)
        rollouts["own_tokens"] = own_tokens(rollouts).sum(1)
        if self.beta:
            taught = regrouping.with_gradient(rollouts)
            rollouts["completion_mask"] = rollouts["completion_mask"] * taught[:, None]
            left_out = self.accelerator.gather(((rollouts["own_tokens"] > 0) & ~taught).sum()).sum()
            self._counts["without_kl"] += int(left_out)
        return rollouts

    def _with_replayed(self, rollouts: Batch) -> Batch:
        """Return rollouts in which earlier prompts replace those without a gradient.

        Old log-probabilities are those of the policy that generated the completions, so they are
        computed now, and kept with those prompts that have a gradient.
        """
        answers, sequences = self.num_generations, rollouts["completion_ids"]
        if not rollouts.keys() & LOGS[:2]:
            rollouts[LOGS[0]] = torch.zeros_like(sequences, dtype=torch.float32)
        taught = regrouping.groups_with_gradient(rollouts, answers)
        most = max(1, int(self.accelerator.gather(taught.sum()).max()))  # the same on all ranks
        groups = taught.int().argsort(descending=True, stable=True)[:most]
        rows = torch.arange(len(sequences), device=groups.device).view(-1, answers)[groups]
        known = self._with_logs(regrouping.take(rollouts, rows.flatten()))
        for name in known.keys() & {*LOGS, RATIO}:
            rollouts[name][rows.flatten()] = known[name].to(rollouts[name])
        self._generation += 1
        oldest, fresh = self._generation - self._replay_age, int(taught.sum())
        waiting = [group for made, group in self._buffer if made >= oldest]
        draw = torch.Generator().manual_seed(self.args.seed + self.state.global_step)
        drawn = torch.randperm(len(waiting), generator=draw)[: len(taught) - fresh].tolist()
        for number in drawn:
            rollouts = regrouping.fill(rollouts, waiting[number], answers)
        for group in torch.arange(fresh * answers, device=rows.device).view(-1, answers):
            self._buffer.append((self._generation, regrouping.take(known, group)))
        del self._buffer[: -self._replay]
        replayed = self.accelerator.gather(torch.tensor(len(drawn), device=rows.device)).sum()
        self._counts["replayed"] += answers * int(replayed)
        return rollouts

    def _loss_scale(self, rollouts: Batch) -> Tensor:
        """Return the factor that makes TRL's loss the mean over kept or trained completions."""
        by_rows = checks.find_loss(self) in checks.BY_ROWS
        if self._mean == "all":  # TRL divides by all rows, kept or not
            share = self.num_generations / self._keep if by_rows and self._keep else 1.0
            return torch.tensor(share, device=self.accelerator.device)
        own = own_tokens(rollouts)
        counts = torch.ones_like(own[:, 0]) if by_rows else own.sum(1)
        counts = torch.stack([counts, counts * regrouping.with_gradient(rollouts)]).sum(1)
        total, trained = self.accelerator.gather(counts).view(-1, 2).sum(0)
        return total / trained.clamp(min=1)

    def _refill(self, count: int) -> Batch:
        assert self._prompts is not None  # refills create it
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        numbers = self._prompts.take(count * ranks)[rank * count : (rank + 1) * count]
        repeated = [number for number in numbers for _ in range(self.num_generations)]
        rows = self.train_dataset.remove_columns(NUMBER)
        return self._score([dict(rows[number]) for number in repeated], repeated)

    @contextmanager
    def _metrics_as(self, kind: str) -> Generator[None]:
        """Log the metrics of the `with` body under names of their own, but add tokens up."""
        noted, self._metrics["train"] = self._metrics["train"], defaultdict(list)
        try:
            yield
        finally:
            found, self._metrics["train"] = self._metrics["train"], noted
            if tokens := found.pop("num_tokens", None):
                noted["num_tokens"] = tokens
            for name, values in found.items():
                noted[f"{kind}/{name}"] += values

    def _score(self, inputs: Any, numbers: list[int]) -> Batch:
        """Return TRL's rollouts of some prompts; advantages that should be 0 are exactly 0."""
        self._scoring = True
        try:
            rollouts = regrouping.split_images(super()._generate_and_score_completions(inputs))
        finally:
            self._scoring = False
        for name in [name for name in self._metrics["train"] if name.startswith("sampling/")]:
            del self._metrics["train"][name]  # they were computed from the zeros
        self._own_tokens += own_tokens(rollouts).sum()
        self._counts["generated"] += len(inputs) * self.accelerator.num_processes
        differs, within, noise = self._judge_rewards()
        if self._prompts is not None:
            asked = self.accelerator.gather(torch.tensor(numbers, device=differs.device))
            self._prompts.resting.record(asked[:: self.num_generations], differs & within)
        first = self.accelerator.process_index * len(inputs)
        own = slice(first, first + len(inputs))
        advantages = rollouts["advantages"]
        rows = (each.repeat_interleave(self.num_generations)[own] for each in (differs, within))
        differs, within = (regrouping.beside(advantages, each) for each in rows)
        zero = (~differs & (advantages.abs() <= noise)) | ~within
        rollouts["advantages"] = advantages.masked_fill(zero, 0)
        if self._keep is not None:
            self._drop(rollouts, self._kept[own])
        return rollouts

    def _drop(self, rollouts: Batch, kept: Tensor) -> None:
        """Treat completions that are not kept as if they had not been generated."""
        advantages = rollouts["advantages"]
        advantages = advantages.masked_fill(~regrouping.beside(advantages, kept), 0)
        mask = rollouts["completion_mask"]
        rollouts |= {"advantages": advantages, "completion_mask": mask * kept[:, None]}
        metrics, rewards = self._metrics["train"], self._all_rewards
        total = (rewards * self.reward_weights.to(rewards.device)).nansum(1)
        total = total[~rewards.isnan().all(1)]
        metrics["reward"][-1] = total.mean().item()
        metrics["reward_std"][-1] = total.std().item()
        for name, column in zip(self.reward_func_names, rewards.unbind(1), strict=True):
            known = column[~column.isnan()]
            metrics[f"rewards/{name}/mean"][-1] = known.mean().item()
            metrics[f"rewards/{name}/std"][-1] = known.std().item()

    def _rewards_kept(self) -> Tensor:
        """Return the rewards, with NaN for completions not kept; TRL's NaN means not scored."""
        return self._all_rewards.masked_fill(~self._kept[:, None], math.nan)

    def _sum_rewards(self, rewards: Tensor) -> Tensor:
        """Return each row's reward, `[row]`; NaN if no reward function scores it."""
        weighed = rewards * self.reward_weights.to(rewards.device)
        total = weighed.nansum(1).masked_fill(rewards.isnan().all(1), math.nan)
        limits = getattr(self, "reward_clip_range", None)
        return total.clamp(*limits) if limits else total

    def _judge_rewards(self) -> tuple[Tensor, Tensor, float]:
        """Return which prompts' rewards differ, which are within the pass rate, and a limit.

        For equal rewards, rounding keeps TRL's advantages within this limit of 0. Advantages beyond
        the limit must come from a subclass, and are left as they are.
        """
        group = self.num_generations
        if getattr(self, "multi_objective_aggregation", None) == "normalize_then_sum":
            rewards = self._rewards_kept() * self.reward_weights.to(self._all_rewards.device)
        else:
            rewards = self._sum_rewards(self._rewards_kept())[:, None]
        columns = rewards.shape[1]
        by_group = rewards.view(-1, group, columns).transpose(1, 2).reshape(-1, group)
        differs = informative(by_group).any(1).view(-1, columns).any(1)
        within = torch.ones_like(differs)
        if self._pass_rate is not None:
            mean = self._sum_rewards(self._all_rewards).view(-1, group).nanmean(1)
            within = (self._pass_rate[0] <= mean) & (mean <= self._pass_rate[1])
        highest = max(1.0, float(rewards.nan_to_num().abs().max()))
        # TRL divides by a deviation of at least 1e-4.
        return differs, within, 1e4 * group * torch.finfo(rewards.dtype).eps * highest

    def _prepare_inputs(self, inputs: Any) -> Batch:
        before = self._buffered_inputs
        batch = super()._prepare_inputs(inputs)
        if self._whole or not self.model.training:
            return batch
        if self._buffered_inputs is not before:
            self._buffered_inputs = self._regroup(self._buffered_inputs)
        batch = self._buffered_inputs[self._step % self.args.steps_per_generation]
        self._counts["trained"] += len(batch["advantages"]) * self.accelerator.num_processes
        for name, count in self._counts.items():
            self._metrics["train"][f"rollouts/{name}"] = [count]
        return batch

    def _regroup(self, batches: list[Batch]) -> list[Batch]:
        # Neither an update nor a generation batch ends within a run of this many micro-batches.
        length = math.gcd(len(batches), self.args.gradient_accumulation_steps)
        runs = [batches[start : start + length] for start in range(0, len(batches), length)]
        kept = torch.stack([torch.cat([*map(regrouping.with_gradient, run)]).sum() for run in runs])
        found = self.accelerator.gather(torch.cat([kept, self._own_tokens.view(1)]))
        found = found.view(-1, len(runs) + 1)
        # DeepSpeed adds gradients up again, or fails, if a micro-batch has no gradients of its own.
        least = length if self.is_deepspeed_enabled else 1
        *most, _ = found.max(0).values.clamp(min=least).tolist()
        self._counts["tokens"] += int(found[:, -1].sum())
        self._own_tokens = torch.zeros_like(self._own_tokens)
        loss, multiple = checks.find_loss(self), getattr(self, "pad_to_multiple_of", None) or 1
        complete = dict if self._replay else self._with_logs  # or all is known already
        return [
            batch
            for run, count in zip(runs, most, strict=True)
            for batch in regrouping.regroup(run, count, least, loss, multiple, complete)
        ]

    def _with_logs(self, batch: Batch) -> Batch:
        """Return completions with the log-probabilities that their rollouts had zeros for."""
        completions, mask = batch["completion_ids"], batch["completion_mask"]
        joined = regrouping.join_images(batch)
        images = {name: joined[name] for name in joined.keys() - batch.keys()}
        for name in [name for name in LOGS if name in batch]:
            self._counts["forwarded"] += len(completions) * self.accelerator.num_processes
            model, adapter = self.model, nullcontext()
            if name == REFERENCE and self.ref_model is not None:
                model = self.ref_model
            elif name == REFERENCE:
                plain = self.accelerator.unwrap_model(model)
                adapter = use_adapter(plain, "ref" if "ref" in plain.peft_config else None)
            options = self.args.gradient_checkpointing_kwargs
            with torch.no_grad(), disable_gradient_checkpointing(self.model, options), adapter:
                logs, _, _ = self._get_per_token_logps_and_entropies(
                    model,
                    torch.cat([batch["prompt_ids"], completions], 1),
                    torch.cat([batch["prompt_mask"], mask], 1),
                    completions.shape[1],
                    batch_size=self.args.per_device_train_batch_size,
                    **images,
                )
            batch[name] = (logs * mask).sum(1) if name == "old_logps" else logs
        if RATIO in batch:
            batch[RATIO] = self._ratios(batch)
        return batch

    def _ratios(self, batch: Batch) -> Tensor:
        """Return and log the factors that correct vLLM's log-probabilities, as in TRL."""
        apart = batch["old_per_token_logps"] - batch["sampling_per_token_logps"]
        mask = own_tokens(batch)
        known = apart[(mask != 0) & ~apart.isnan()].abs()
        level, _, cut = self.vllm_importance_sampling_mode.partition("_")
        apart = (apart * mask).nan_to_num(nan=0.0)
        ratios = (apart.sum(1, keepdim=True) if level == "sequence" else apart).exp()
        low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
        within = ratios.clamp(-math.inf if low is None else low, high)
        ratios = within if cut == "truncate" else ratios.where(ratios == within, 0.0)
        counted = ratios.flatten() if level == "sequence" else ratios[mask != 0]
        noted = {"sampling_logp_difference": known, RATIO: counted}
        for name, found in noted.items():
            sums = torch.stack([found.sum(), found.new_tensor(float(found.numel()))])
            total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
            self._metrics["train"][f"trained/sampling/{name}/mean"].append(total / max(1.0, count))
        return ratios

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return TRL's loss of the remaining completions; 0 if there are none."""
        if self._whole or not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if not len(inputs["advantages"]):
            return inputs["advantages"].new_zeros((), requires_grad=True)
        with self._metrics_as("trained"):
            inputs = regrouping.join_images(inputs)
            loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return loss * inputs["loss_scale"]


class NonzeroGRPOTrainer(NonzeroRollouts, GRPOTrainer):
    """TRL's `GRPOTrainer` without completions that have no gradient; see `NonzeroRollouts`."""


class NonzeroRLOOTrainer(NonzeroRollouts, RLOOTrainer):
    """TRL's `RLOOTrainer` without completions that have no gradient; see `NonzeroRollouts`.

    RLOO's KL penalty makes rewards differ, so no completion is left out unless `beta=0.0`. TRL's
    logged loss includes masked truncated completions, which have no gradient; here it does not.
    """
