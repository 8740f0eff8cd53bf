"""Train with TRL's GRPOTrainer, on all rollouts and on chosen ones.

It needs the environment that `scripts/frameworks` makes.
"""

import itertools
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch.nn.utils import parameters_to_vector
from torch.nn.utils.rnn import pad_sequence

import selective_backprop as sb
from benchmarks.case import Row, case

DIGITS, OF_PROMPTS, LENGTH = "012345", "0123", 3
GROUP, UPDATE, SIZE = 8, 128, 32  # answers to a prompt, of an update and of a micro-batch


def rewarded(answer: Callable[[str], str]) -> Callable[..., list[float]]:
    """Return a reward of 1 for each completion that answers its prompt, else 0."""

    def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        given = (each.replace(" ", "") for each in completions)
        pairs = zip(given, prompts, strict=True)
        return [float(each == answer(prompt)) for each, prompt in pairs]

    return reward


ANSWERS: dict[str, Callable[[str], str]] = {
    "reverse": lambda digits: digits[::-1],
    "sort": lambda digits: "".join(sorted(digits)),
    "add": lambda digits: "".join(str((int(digit) + 1) % 4) for digit in digits),
}
SOLVED = 0.95  # mean reward of an answer to each prompt
# Options of NonzeroGRPOTrainer, except for the first; prompts rest where `rest` is given.
ARMS: dict[str, dict[str, Any] | None] = {
    "GRPOTrainer": None,
    "non-zero": {},
    "non-zero, 3 refills": {"refills": 3},
    "max variance, 4 of 8": {"keep": 4},
    "prompts rest": {"rest": 0.5},
    "all three": {"refills": 3, "keep": 4, "rest": 0.5},
    "replay=8": {"replay": 8},
    "replay=32": {"replay": 32},
    'mean="trained"': {"mean": "trained"},
}
SAMPLED, REPLAYED = tuple(ARMS)[:6], ("GRPOTrainer", "non-zero", *tuple(ARMS)[6:])
COMMON = {"num_generations": GROUP, "num_iterations": 2, "loss_type": "grpo"}
COMMON |= {"lr_scheduler_type": "constant", "gradient_checkpointing": False}
COMMON |= {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
# The better of 1e-3 and 2e-3, by the tokens that seed 0 generated. The last two arms have that of
# "non-zero"; the first two train alike.
RATES = dict.fromkeys(SAMPLED, 1e-3) | {"non-zero, 3 refills": 2e-3}


@case("src/selective_backprop/integrations/_trl", "src/selective_backprop/_rollouts")
def sampled(
    *, arms: tuple[str, ...] = SAMPLED, seeds: tuple[int, ...] = (1, 2, 3, 4, 5), lr: float = 0.0
) -> Iterator[Row]:
    """Tokens, rows and seconds until a task with digits is solved; `lr` 0 means the best rate."""
    for seed, task, arm in itertools.product(seeds, ANSWERS, arms):
        about = {"arm": arm, "task": task, "lr": lr or RATES[arm], "seed": seed}
        yield about | until_solved(**about, most=400)


@case("src/selective_backprop/integrations/_trl")
def replayed(*, seeds: tuple[int, ...] = tuple(range(1, 9))) -> Iterator[Row]:
    """Rewards after 120 updates, each arm at the rate whose mean reward is best for seed 0."""
    rates, total = (1e-3, 2e-3, 4e-3), Counter[tuple[str, float]]()
    for seed, task, arm in itertools.product((0, *seeds), ANSWERS, REPLAYED):
        for lr in [max(rates, key=lambda lr: total[arm, lr])] if seed else rates:
            about = {"arm": arm, "task": task, "lr": lr, "seed": seed}
            row = about | until_solved(**about, most=120, solved=math.inf, answers=4)
            total[arm, lr] += 0 if seed else sum(reward for _, reward, *_ in row["curve"])
            yield row


def until_solved(
    arm: str, task: str, lr: float, seed: int, most: int, solved: float = SOLVED, answers: int = 1
) -> Row:
    """Train until the mean reward of so many answers to each prompt is `solved`, or `most` updates.

    The curve has tokens generated before each evaluation, mean reward, rows, and training seconds.
    """
    from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback
    from trl import GRPOTrainer

    from selective_backprop.integrations.trl import NonzeroGRPOTrainer

    plain, ours = ARMS[arm] is None, dict(ARMS[arm] or {})
    prompts = ["".join(each) for each in itertools.product(OF_PROMPTS, repeat=LENGTH)]
    if "rest" in ours:
        ours["rest"] = sb.RestingPrompts(len(prompts), explore=ours["rest"], seed=seed)
    spent, curve = Counter[str](), list[tuple[int, float, int, float]]()

    class Until(TrainerCallback):  # ends training once the task is solved
        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
            reward = round(metrics["eval_reward"], 4)
            curve.append((spent["tokens"], reward, spent["rows"], spent["trained"]))
            control.should_training_stop |= reward >= solved

    torch.manual_seed(seed)
    config = {"vocab_size": 7, "n_positions": 8, "n_embd": 64, "n_layer": 1, "n_head": 4}
    config |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config |= {"bos_token_id": None, "eos_token_id": 6, "pad_token_id": 6}
    ours["model"] = GPT2LMHeadModel(GPT2Config(**config))
    options = {"seed": seed, "max_steps": most, "learning_rate": lr, "logging_steps": 2}
    options |= {"max_completion_length": LENGTH, "gradient_accumulation_steps": UPDATE // SIZE}
    options |= {"eval_strategy": "steps", "eval_steps": 10, "num_generations_eval": answers}
    options |= {"per_device_train_batch_size": SIZE, "use_cpu": True, "bf16": False}
    options |= {"per_device_eval_batch_size": answers * len(prompts)}
    ours |= {"callbacks": [Until()], "reward_funcs": rewarded(ANSWERS[task])}
    made = trained(GRPOTrainer if plain else NonzeroGRPOTrainer, prompts, spent, options, **ours)
    found = {"updates": made.state.global_step, "curve": curve, "solved": curve[-1][1] >= SOLVED}
    return spent | found | {"cpu_seconds": spent["seconds"] - spent["evaluating"]}


def trained(kind: Any, prompts: list[str], spent: Counter[str], options: Row, **ours: Any) -> Any:
    """Return a trainer after training; `spent` gets what TRL itself was given, and seconds."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig

    clock = time.perf_counter if torch.cuda.is_available() else time.process_time

    class Metered(kind):
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            spent["rows"] += len(inputs["advantages"]) * model.training
            return super()._compute_loss(model, inputs)

        def _get_per_token_logps_and_entropies(self, model: Any, *rest: Any, **more: Any) -> Any:
            begun = clock()
            found = super()._get_per_token_logps_and_entropies(model, *rest, **more)
            if model.training and not torch.is_grad_enabled():
                spent["passes"] += len(rest[0]) * found[0].any().item()  # waits until it is done
                spent["old log-probabilities"] += clock() - begun
            return found

        def _generate(self, prompts: Any) -> Any:
            begun, found = clock(), super()._generate(prompts)
            if self.model.training:
                spent["tokens"] += sum(map(len, found[1]))
                spent["generating"] += clock() - begun
            return found

        def evaluate(self, *args: Any, **options: Any) -> Any:
            begun = clock()
            spent["trained"] = begun - started - spent["evaluating"]
            found = super().evaluate(*args, **options)
            spent["evaluating"] += clock() - begun
            return found

    data = Dataset.from_list([{"prompt": each} for each in prompts])
    ours |= {"train_dataset": data, "eval_dataset": data, "processing_class": digit_tokenizer()}
    with tempfile.TemporaryDirectory() as folder:
        made = Metered(args=GRPOConfig(folder, **COMMON | options), **ours)
        made.remove_callback(PrinterCallback)
        started = clock()
        made.train()
    spent["seconds"] = clock() - started
    return made


@case("src/selective_backprop/integrations/_trl")
def sized(*, device: str = "cuda", seconds: float = 240.0, rounds: int = 3) -> Iterator[Row]:
    """Wall seconds of two updates by part, with a Qwen3 of 0.6B that learns the tasks first."""
    from selective_backprop.integrations.trl import NonzeroGRPOTrainer  # or it says what is missing

    real, plain = device == "cuda", torch.empty(0)
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOTrainer

    draw, make = random.Random(0), digit_tokenizer()
    width, layers, words, longest, count = (1024, 28, 151_936, 32, 64) if real else (32, 1, 7, 2, 8)
    sizes = {"hidden_size": width, "intermediate_size": 3 * width, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": words}
    sizes |= {"eos_token_id": 6, "pad_token_id": 6, "tie_word_embeddings": True}
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**sizes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4 if real else 1e-2)

    def ask() -> dict[str, str]:  # prompts of all tasks with their answers; short ones are easier
        asked = dict[str, str]()
        while len(asked) < count:
            digits = "".join(draw.choices(OF_PROMPTS, k=draw.randint(1, longest)))
            sign, answer = draw.choice([*zip(("", "4", "5"), ANSWERS.values(), strict=True)])
            asked[sign + digits] = answer(digits)
        return asked

    begun, right = time.monotonic(), 0.0
    while right < 1 / 2 and time.monotonic() - begun < seconds:
        rows = [(make(f"{prompt}{end}.").input_ids, len(prompt)) for prompt, end in ask().items()]
        ids, wanted = (
            pad_sequence([*map(torch.tensor, of)], True, -100).to(device)
            for of in zip(*((row, [-100] * n + row[n:]) for row, n in rows), strict=True)
        )
        with torch.autocast(device, torch.bfloat16, enabled=real):
            loss = model(ids.clamp(min=0), labels=wanted).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        right = math.exp(-loss.item() * (wanted >= 0).sum().item() / count)
    before, asked = parameters_to_vector(model.parameters()).detach(), ask()
    options = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1, "bf16": real}
    options |= {"per_device_train_batch_size": count // 2, "gradient_accumulation_steps": 2 * GROUP}
    options |= {"max_completion_length": longest + 1, "use_cpu": not real}
    for number, kind in itertools.product(range(rounds), (GRPOTrainer, NonzeroGRPOTrainer)):
        ours = {"model": deepcopy(model), "reward_funcs": rewarded(asked.__getitem__)}
        made = trained(kind, [*asked], spent := Counter(), options, **ours)
        moved = parameters_to_vector(made.model.parameters()).detach() - before
        plain = moved if kind is GRPOTrainer else plain
        spent["updates"] = spent["seconds"] - spent["generating"] - spent["old log-probabilities"]
        apart = ((moved - plain).norm() / plain.norm()).item()
        yield {"arm": kind.__name__, "round": number, "right": right} | spent | {"apart": apart}


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
