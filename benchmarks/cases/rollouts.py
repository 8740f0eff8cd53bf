"""What rollouts without a gradient cost, with TRL's trainer and in a loop of one's own."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

import selective_backprop as sb
from benchmarks.case import Once, Row, case
from benchmarks.cases.examples import example

STEP = ("src/selective_backprop/_step", "examples/grpo.py")
SOLVED = 0.95  # mean reward over all prompts
# By name: whether rows without a gradient are left out or batches filled up, answers kept of each
# group, and whether prompts rest.
ARMS: dict[str, tuple[str, int | None, bool]] = {
    "every answer": ("plain", None, False),
    "non-zero": ("nonzero", None, False),
    "non-zero, batches filled up": ("backfill", None, False),
    "max variance, 4 of 8": ("nonzero", 4, False),
    "prompts rest": ("nonzero", None, True),
    "prompts rest, max variance": ("nonzero", 4, True),
}


@case(*STEP)
def sampled(
    *, seeds: int = 5, lrs: tuple[float, ...] = (0.001, 0.002), most: int = 10
) -> Iterator[Once]:
    """What ways to sample take to solve grpo.py's task, in so many groups of answers a prompt."""
    for seed, lr, arm in itertools.product(range(seeds), lrs, ARMS):
        # Where batches are filled up, steps are some times fewer and rates higher.
        lr = 2 * lr if ARMS[arm][0] == "backfill" else lr
        about = {"arm": arm, "lr": lr, "seed": seed}
        yield Once(about, lambda about=about: [until_solved(**about, most=most)])


def until_solved(arm: str, lr: float, seed: int, most: int) -> Row:
    """Train on all prompts until nearly all answers are right; return what it took."""
    toy, (rows_of, keep, rests) = example("grpo"), ARMS[arm]
    prompts = torch.tensor([*itertools.product(range(toy["DIGITS"]), repeat=toy["LENGTH"])])
    torch.manual_seed(seed)
    policy, size = toy["Policy"](), toy["PROMPTS"] * toy["GROUP"]
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(seed)
    resting = sb.RestingPrompts(len(prompts), seed=seed, explore=0.5 if rests else 1.0)
    loader = DataLoader(range(len(prompts)), toy["PROMPTS"], sampler=resting)
    filled = sb.NonzeroRows(backfill=size, refills=8) if rows_of == "backfill" else None
    spent = dict.fromkeys(("tokens", "answers", "trained", "steps", "cpu_seconds"), 0.0)
    rewarded, looked = [], 0
    while spent["answers"] < most * len(prompts) * toy["GROUP"]:
        for numbers in loader:
            started = time.process_time()
            rows = toy["roll_out"](policy, prompts[numbers], generator)
            rewards = toy["reward"](rows)
            resting.record(numbers, rewards)
            spent["answers"] += len(rows)
            spent["tokens"] += len(rows) * toy["LENGTH"]
            for batch in chosen(toy, policy, rows, rewards, rows_of, keep, filled):
                toy["update"](policy, optimizer, *batch)
                spent["trained"] += len(batch[0])
                spent["steps"] += 1
            spent["cpu_seconds"] += time.process_time() - started
            if spent["answers"] >= (looked + 1) * len(prompts) * toy["GROUP"]:
                looked += 1
                rewarded.append(toy["reward"](toy["roll_out"](policy, prompts, generator)).mean())
                if rewarded[-1] >= SOLVED:
                    return spent | {"reward": float(rewarded[-1]), "solved": True}
    return spent | {"reward": float(rewarded[-1]), "solved": False}


def chosen(
    toy: dict[str, Any],
    policy: Any,
    rows: Tensor,
    rewards: Tensor,
    rows_of: str,
    keep: int | None,
    filled: sb.NonzeroRows | None,
) -> list[tuple[Tensor, ...]]:
    """Return the batches to train on: rows, advantages, weights, and log-probabilities before."""
    teaches = sb.informative(rewards)
    advantages = toy["standardized"](rewards)
    if keep is not None:
        best = sb.max_variance(rewards, keep)
        kept = toy["standardized"](rewards[best].view(-1, keep))
        advantages = torch.zeros_like(advantages).masked_scatter(best, kept)
        rows, advantages, teaches = rows[best.flatten()], advantages[best], teaches[best]
    batch = rows, advantages.flatten()
    with torch.no_grad():
        if filled is not None:  # rows wait across updates, and the policy changes meanwhile
            batch = *batch, policy.answer_logs(rows)
            return [
                (some, theirs, selection.weights, before)
                for (some, theirs, before), selection in filled(batch, teaches.flatten())
            ]
        weights = torch.ones(len(rows))
        if rows_of == "nonzero":
            [(batch, selection)] = sb.NonzeroRows()(batch, teaches.flatten())
            weights = selection.weights
        return [(*batch, weights, policy.answer_logs(batch[0]))]
