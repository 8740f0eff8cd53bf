"""What TRL's GRPOTrainer takes with and without rollouts that have no gradient.

It needs the frameworks: `scripts/frameworks` makes their environment.
"""

import itertools
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

from benchmarks.case import Once, Row, case

DIGITS, LENGTH = "012345", 3
GROUP, UPDATE = 8, 128  # answers to a prompt, and of an update
TRAINERS = {"GRPOTrainer": "trl", "NonzeroGRPOTrainer": "selective_backprop.integrations.trl"}


@case("src/selective_backprop/integrations/_trl", "src/selective_backprop/_step/rollouts.py")
def grpo(
    *, seeds: int = 3, sizes: tuple[int, ...] = (32,), steps: int = 300, lr: float = 2e-3
) -> Iterator[Once]:
    """Reversing three digits, with micro-batches of some sizes: rows, seconds and rewards."""
    for seed, size, trainer in itertools.product(range(seeds), sizes, TRAINERS):
        about = {"trainer": trainer, "size": size, "seed": seed}
        yield Once(about, lambda about=about: [trained(**about, steps=steps, lr=lr)])


def trained(trainer: str, size: int, seed: int, steps: int, lr: float) -> Row:
    """Train once; return CPU seconds of generating and of all, rows forwarded, and rewards."""
    from datasets import Dataset
    from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback
    from trl import GRPOConfig

    spent = {"rows": 0, "passes": 0, "generating": 0.0}

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
            spent["generating"] += time.process_time() - started
            return found

    prompts = ["".join(each) for each in itertools.product(DIGITS, repeat=LENGTH)]
    torch.manual_seed(seed)
    config = GPT2Config(
        **{"vocab_size": 7, "n_positions": 8, "n_embd": 64, "n_layer": 1, "n_head": 4},
        **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        **{"bos_token_id": None, "eos_token_id": 6, "pad_token_id": 6},
    )
    with tempfile.TemporaryDirectory() as folder:
        made = Metered(
            model=GPT2LMHeadModel(config),
            reward_funcs=reversed_reward,
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
            ),
            train_dataset=Dataset.from_list([{"prompt": each} for each in prompts]),
            processing_class=digit_tokenizer(),
        )
        made.remove_callback(PrinterCallback)
        started = time.process_time()
        made.train()
        seconds = time.process_time() - started
    rewards = [entry["reward"] for entry in made.state.log_history if "reward" in entry]
    return spent | {"cpu_seconds": seconds, "rewards": rewards}


def reversed_reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """Return 1 for each completion that is its prompt reversed, else 0."""
    answers = (each.replace(" ", "") for each in completions)
    return [float(answer == prompt[::-1]) for prompt, answer in zip(prompts, answers, strict=True)]


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
