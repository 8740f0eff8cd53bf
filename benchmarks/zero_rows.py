"""Measure what a toy GRPO costs with and without the rows of groups of equal rewards.

    python benchmarks/zero_rows.py --out records/bench/zero-rows.json

Of each seed, `examples/grpo.py` trains twice: on all rows, and on those whose gradient is not zero.
Then its policy is trained on a data set of all prompts, with and without a memory of those whose
groups had equal rewards, which rest for four epochs. CPU seconds are of the whole loop, answers and
rewards included. One CPU thread.
"""

import argparse
import itertools
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from recording import write_record
from rich.console import Console
from torch import Tensor
from torch.utils.data import DataLoader

import selective_backprop as sb

EXAMPLE = Path(__file__).parents[1] / "examples" / "grpo.py"
TOY = runpy.run_path(str(EXAMPLE))
# What is recorded of a prompt's rewards `[prompt, answer]`, and is 0 where it may rest.
MEMORIES: dict[str, Callable[[Tensor], Tensor] | None] = {
    "no prompt": None,
    "prompts with all answers right": lambda rewards: 1 - rewards.amin(1),
    "prompts with equal rewards": lambda rewards: rewards.amax(1) - rewards.amin(1),
}


def train_on_all(prompts: Tensor, rests: str, epochs: int, seed: int) -> dict[str, Any]:
    """Train with a memory of prompts; return the answers generated, the seconds, the reward."""
    torch.manual_seed(seed)
    policy, tells = TOY["Policy"](), MEMORIES[rests]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    loader = sb.SelectiveLoader(
        DataLoader(prompts, TOY["PROMPTS"], shuffle=True, generator=generator),
        None,
        None,
        sb.traditional() if tells is None else sb.drop_zero(sb.scorers.Recorded(max_age=4)),
        with_selection=True,
        quiet=True,
    )
    nonzero, answers, started = sb.NonzeroRows(), 0, time.process_time()
    for _ in range(epochs):
        for some, selection in loader:
            rows = TOY["roll_out"](policy, some, generator)
            rewards = TOY["reward"](rows)
            if tells is not None:
                loader.record(selection, tells(rewards))
            answers += len(rows)
            TOY["improve"](policy, optimizer, rows, rewards, nonzero)
    seconds = time.process_time() - started
    final = TOY["reward"](TOY["roll_out"](policy, prompts, generator)).mean().item()
    return {"seed": seed, "rests": rests, "answers": answers, "cpu_seconds": seconds, "end": final}


def main() -> int:
    """Measure, print, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    train, found = TOY["train"], []
    for seed in range(options.seeds):
        _, plain, all_rows, whole = train(None, options.steps, seed)
        _, match, rows, less = train(sb.NonzeroRows(), options.steps, seed)
        found.append(
            {
                "seed": seed,
                "reward": sum(match[-10:]) / 10,
                "furthest": max(abs(a - b) for a, b in zip(plain, match, strict=True)),
                "rows": [all_rows, rows],
                "cpu_seconds": [whole, less],
            }
        )
        Console(width=100).print(found[-1])
    prompts = torch.tensor([*itertools.product(range(TOY["DIGITS"]), repeat=TOY["LENGTH"])])
    remembered = [
        train_on_all(prompts, rests, options.epochs, seed)
        for rests in MEMORIES
        for seed in range(options.seeds)
    ]
    Console(width=100).print(remembered)
    if options.out:
        write_record(
            options.out,
            steps=options.steps,
            trainings=found,
            epochs=options.epochs,
            memories=remembered,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
