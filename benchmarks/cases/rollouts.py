"""What rollouts without a gradient cost, with TRL's trainer and in a loop of one's own."""

import itertools
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb
from benchmarks.case import Once, Row, case

DIGITS, LENGTH, WIDTH = 6, 3, 64
PROMPTS, GROUP = 16, 8  # of each step, and answers to each prompt
UPDATES = 2  # on the answers of each step, the second of them clipped
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


@case("src/selective_backprop/_step")
def sampled(
    *, seeds: int = 5, lrs: tuple[float, ...] = (0.001, 0.002), most: int = 10
) -> Iterator[Once]:
    """What ways to sample take until a policy reverses digits, in so many groups a prompt."""
    for seed, lr, arm in itertools.product(range(seeds), lrs, ARMS):
        # Where batches are filled up, steps are some times fewer and rates higher.
        lr = 2 * lr if ARMS[arm][0] == "backfill" else lr
        about = {"arm": arm, "lr": lr, "seed": seed}
        yield Once(about, lambda about=about: [until_solved(**about, most=most)])


class Policy(nn.Module):
    """A transformer of one layer, in float64, so that rounding never changes a sampled digit."""

    def __init__(self) -> None:
        super().__init__()
        self.digit = nn.Embedding(DIGITS, WIDTH)
        self.place = nn.Embedding(2 * LENGTH, WIDTH)
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(WIDTH, DIGITS)
        self.double()

    def forward(self, digits: Tensor) -> Tensor:
        """Return the logits of each next digit, `[row, digit, class]`."""
        length = digits.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.float64)
        hidden = self.digit(digits) + self.place.weight[:length]
        return self.head(self.layer(hidden, src_mask=mask, is_causal=True))

    def answer_logs(self, rows: Tensor) -> Tensor:
        """Return the log-probability of each digit of the answers, `[row, digit]`."""
        logs = self(rows[:, :-1])[:, LENGTH - 1 :].log_softmax(2)
        return logs.gather(2, rows[:, LENGTH:, None]).squeeze(2)


@torch.no_grad()
def roll_out(policy: Policy, prompts: Tensor, generator: torch.Generator) -> Tensor:
    """Return prompts with a group of sampled answers to each, `[row, digit]`."""
    rows = prompts.repeat_interleave(GROUP, 0)
    for _ in range(LENGTH):
        odds = policy(rows)[:, -1].softmax(1)
        rows = torch.cat([rows, torch.multinomial(odds, 1, generator=generator)], 1)
    return rows


def reward(rows: Tensor) -> Tensor:
    """Return 1 for each answer that is its prompt reversed, else 0, `[prompt, answer]`."""
    right = (rows[:, LENGTH:] == rows[:, :LENGTH].flip(1)).all(1)
    return right.double().view(-1, GROUP)


def standardized(rewards: Tensor) -> Tensor:
    """Return advantages, `[prompt, answer]`: zeros where all answers are right, or none is."""
    spread = rewards - rewards.mean(1, keepdim=True)
    return spread / (rewards.std(1, keepdim=True) + 1e-4)


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    rows: Tensor,
    advantages: Tensor,
    weights: Tensor,
    before: Tensor,
) -> None:
    """Update the policy by answers, of which it gave `before` as the log-probabilities."""
    for _ in range(UPDATES):
        ratios = (policy.answer_logs(rows) - before).exp()
        gains = torch.minimum(
            ratios * advantages[:, None], ratios.clamp(0.8, 1.2) * advantages[:, None]
        )
        optimizer.zero_grad()
        (weights * -gains.mean(1)).mean().backward()
        optimizer.step()


def until_solved(arm: str, lr: float, seed: int, most: int) -> Row:
    """Train on all prompts until nearly all answers are right; return what it took."""
    rows_of, keep, rests = ARMS[arm]
    prompts = torch.tensor([*itertools.product(range(DIGITS), repeat=LENGTH)])
    torch.manual_seed(seed)
    policy, size = Policy(), PROMPTS * GROUP
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(seed)
    resting = sb.RestingPrompts(len(prompts), seed=seed, explore=0.5 if rests else 1.0)
    loader = DataLoader(range(len(prompts)), PROMPTS, sampler=resting)
    filled = sb.NonzeroRows(backfill=size, refills=8) if rows_of == "backfill" else None
    spent = dict.fromkeys(("tokens", "answers", "trained", "steps", "cpu_seconds"), 0.0)
    rewarded, looked = [], 0
    while spent["answers"] < most * len(prompts) * GROUP:
        for numbers in loader:
            started = time.process_time()
            rows = roll_out(policy, prompts[numbers], generator)
            rewards = reward(rows)
            resting.record(numbers, rewards)
            spent["answers"] += len(rows)
            spent["tokens"] += len(rows) * LENGTH
            for batch in chosen(policy, rows, rewards, rows_of, keep, filled):
                update(policy, optimizer, *batch)
                spent["trained"] += len(batch[0])
                spent["steps"] += 1
            spent["cpu_seconds"] += time.process_time() - started
            if spent["answers"] >= (looked + 1) * len(prompts) * GROUP:
                looked += 1
                rewarded.append(reward(roll_out(policy, prompts, generator)).mean())
                if rewarded[-1] >= SOLVED:
                    return spent | {"reward": float(rewarded[-1]), "solved": True}
    return spent | {"reward": float(rewarded[-1]), "solved": False}


def chosen(
    policy: Policy,
    rows: Tensor,
    rewards: Tensor,
    rows_of: str,
    keep: int | None,
    filled: sb.NonzeroRows | None,
) -> list[tuple[Tensor, ...]]:
    """Return the batches to train on: rows, advantages, weights, and log-probabilities before."""
    teaches = sb.informative(rewards)
    advantages = standardized(rewards)
    if keep is not None:
        best = sb.max_variance(rewards, keep)
        kept = standardized(rewards[best].view(-1, keep))
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
