"""What TRL's GRPOTrainer takes with all rollouts, and with ways to choose among them.

It needs the frameworks: `scripts/frameworks` makes their environment.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch

from benchmarks.case import Once, Row, case

DIGITS, LENGTH = "012345", 3
GROUP, UPDATE = 8, 128  # answers to a prompt, and of an update


def rewarded(answer: Callable[[str], str]) -> Callable[..., list[float]]:
    """Return a reward of 1 for each completion that answers its prompt, else 0."""

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        given = (each.replace(" ", "") for each in completions)
        pairs = zip(given, prompts, strict=True)
        return [float(each == answer(prompt)) for each, prompt in pairs]

    return reward


TASKS = {
    "reverse": rewarded(lambda prompt: prompt[::-1]),
    "sort": rewarded(lambda prompt: "".join(sorted(prompt))),
}
TRAINERS = {"GRPOTrainer": "trl", "NonzeroGRPOTrainer": "selective_backprop.integrations.trl"}
SOLVED = 0.95  # mean reward of an answer to each prompt
# Options of NonzeroGRPOTrainer, but of the first; prompts rest where `rest` is given.
ARMS: dict[str, dict[str, Any] | None] = {
    "GRPOTrainer": None,
    "non-zero": {},
    "non-zero, 3 refills": {"refills": 3},
    "max variance, 4 of 8": {"keep": 4},
    "prompts rest": {"rest": 0.5},
    "all three": {"refills": 3, "keep": 4, "rest": 0.5},
}


@case("src/selective_backprop/integrations/_trl", "src/selective_backprop/_step/rollouts.py")
def grpo(
    *, seeds: int = 3, sizes: tuple[int, ...] = (32,), steps: int = 300, lr: float = 2e-3
) -> Iterator[Once]:
    """Reversing three digits, with micro-batches of some sizes: rows, seconds and rewards."""
    for seed, size, trainer in itertools.product(range(seeds), sizes, TRAINERS):
        about = {"trainer": trainer, "size": size, "seed": seed}
        yield Once(about, lambda about=about: [trained(**about, steps=steps, lr=lr)])


@case("src/selective_backprop/integrations/_trl", "src/selective_backprop/_step/rollouts.py")
def sampled(
    *,
    seeds: int = 5,
    lrs: tuple[float, ...] = (1e-3, 2e-3),
    tasks: tuple[str, ...] = tuple(TASKS),
    most: int = 600,
) -> Iterator[Once]:
    """Reversing and sorting three digits until it is solved: tokens generated, rows, seconds."""
    for seed, lr, task, arm in itertools.product(range(seeds), lrs, tasks, ARMS):
        about = {"arm": arm, "task": task, "lr": lr, "seed": seed}
        yield Once(about, lambda about=about: [until_solved(**about, most=most)])


def until_solved(arm: str, task: str, lr: float, seed: int, most: int) -> Row:
    """Train until nearly all answers to all prompts are right, for so many updates at most."""
    import selective_backprop as sb

    found, trainer = ARMS[arm], "GRPOTrainer" if ARMS[arm] is None else "NonzeroGRPOTrainer"
    options = dict(found or {})
    if "rest" in options:
        count = len(DIGITS) ** LENGTH
        options["rest"] = sb.RestingPrompts(count, explore=options["rest"], seed=seed)
    row = trained(trainer, UPDATE // 4, seed, most, lr, task, options, until=SOLVED)
    return row | {"tokens": row["answers"] * LENGTH}


def trained(
    trainer: str,
    size: int,
    seed: int,
    steps: int,
    lr: float,
    task: str = "reverse",
    options: dict[str, Any] | None = None,
    until: float | None = None,
) -> Row:
    """Train, until a mean reward is reached if it is given; return seconds, rows and rewards.

    CPU seconds are those of generating and of all but evaluation.
    """
    from datasets import Dataset
    from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, TrainerCallback
    from trl import GRPOConfig

    spent = {"rows": 0, "passes": 0, "answers": 0, "generating": 0.0, "evaluating": 0.0}

    class Metered(
        getattr(import_module(TRAINERS[trainer]), trainer)
    ):  # counts what TRL itself is given
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            spent["rows"] += len(inputs["advantages"])
            return super()._compute_loss(model, inputs)

        def _get_per_token_logps_and_entropies(
            self, model: Any, ids: Any, *rest: Any, **options: Any
        ) -> Any:
            found = super()._get_per_token_logps_and_entropies(model, ids, *rest, **options)
            spent["passes"] += len(ids) * (not torch.is_grad_enabled() and found[0].any().item())
            return found

        def _generate(self, prompts: Any) -> Any:
            started = time.process_time()
            found = super()._generate(prompts)
            if self.model.training:
                spent["answers"] += len(prompts)
                spent["generating"] += time.process_time() - started
            return found

        def evaluate(self, *args: Any, **options: Any) -> Any:
            started = time.process_time()
            found = super().evaluate(*args, **options)
            spent["evaluating"] += time.process_time() - started
            return found

    class Until(TrainerCallback):  # ends training once it is good enough
        reward = 0.0

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
            self.reward = metrics["eval_reward"]
            control.should_training_stop = until is not None and self.reward >= until

    prompts = ["".join(each) for each in itertools.product(DIGITS, repeat=LENGTH)]
    torch.manual_seed(seed)
    config = GPT2Config(
        **{"vocab_size": 7, "n_positions": 8, "n_embd": 64, "n_layer": 1, "n_head": 4},
        **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        **{"bos_token_id": None, "eos_token_id": 6, "pad_token_id": 6},
    )
    data, watch = Dataset.from_list([{"prompt": each} for each in prompts]), Until()
    with tempfile.TemporaryDirectory() as folder:
        made = Metered(
            model=GPT2LMHeadModel(config),
            reward_funcs=TASKS[task],
            args=GRPOConfig(
                folder,
                seed=seed,
                max_steps=steps,
                per_device_train_batch_size=size,
                gradient_accumulation_steps=UPDATE // size,
                num_generations=GROUP,
                num_iterations=2,
                max_completion_length=LENGTH,
                loss_type="grpo",
                learning_rate=lr,
                lr_scheduler_type="constant",
                logging_steps=2,
                report_to="none",
                save_strategy="no",
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
                gradient_checkpointing=False,
                eval_strategy="no" if until is None else "steps",
                eval_steps=10,
                per_device_eval_batch_size=len(prompts),
                num_generations_eval=1,
            ),
            train_dataset=data,
            eval_dataset=data,
            processing_class=digit_tokenizer(),
            callbacks=[watch],
            **options or {},
        )
        made.remove_callback(PrinterCallback)
        started = time.process_time()
        made.train()
        seconds = time.process_time() - started - spent["evaluating"]
    rewards = [entry["reward"] for entry in made.state.log_history if "reward" in entry]
    found = spent | {"cpu_seconds": seconds, "rewards": rewards}
    if until is None:
        return found
    return found | {"reward": watch.reward, "solved": watch.reward >= until}


def digit_tokenizer() -> Any:
    """Return a tokenizer with a token for each digit, and one that ends and pads."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(WordLevel({each: n for n, each in enumerate((*DIGITS, "."))}, unk_token="."))
    made.pre_tokenizer = Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=".", eos_token=".", unk_token=".", padding_side="left"
    )
