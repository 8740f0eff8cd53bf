"""GRPO on a toy task, reversing three digits: rows without a gradient are not trained on."""

import sys

import torch
from torch import nn

import selective_backprop as sb

DIGITS, LENGTH = 6, 3
PROMPTS, GROUP = 16, 8  # prompts per step, and answers per prompt


def train(nonzero: sb.NonzeroRows | None, steps: int) -> tuple[nn.Module, list[float], int]:
    """Return the policy, each step's mean reward, and how many rows it was trained on."""
    torch.manual_seed(0)
    # In float64, so that rounding never changes a sampled digit.
    net = (nn.Embedding(DIGITS, 32), nn.Flatten(), nn.Linear(32 * LENGTH, 128), nn.ReLU())
    head = (nn.Linear(128, LENGTH * DIGITS), nn.Unflatten(1, (LENGTH, DIGITS)))
    policy = nn.Sequential(*net, *head, nn.LogSoftmax(2)).double()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    rewarded, trained = [], 0
    for _ in range(steps):
        prompts = torch.randint(DIGITS, (PROMPTS, LENGTH)).repeat_interleave(GROUP, 0)
        with torch.no_grad():
            answers = torch.distributions.Categorical(logits=policy(prompts)).sample()
        rewards = (answers == prompts.flip(1)).all(1).double().view(-1, GROUP)
        rewarded.append(rewards.mean().item())
        spread = rewards - rewards.mean(1, keepdim=True)
        advantages = (spread / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        rows, weights = (prompts, answers, advantages), torch.ones(len(prompts))
        if nonzero is not None:
            [(rows, selection)] = nonzero(rows, sb.informative(rewards).flatten())
            weights = selection.weights
        prompts, answers, advantages = rows
        trained += len(prompts)
        before = None
        for _ in range(2):  # two updates on these answers; only the second can be clipped
            logs = policy(prompts).gather(2, answers[..., None]).squeeze(2)
            before = logs.detach() if before is None else before
            ratios = (logs - before).exp()
            gains = torch.minimum(ratios * advantages, ratios.clamp(0.8, 1.2) * advantages)
            optimizer.zero_grad()
            (weights * -gains.mean(1)).mean().backward()
            optimizer.step()
    return policy, rewarded, trained


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    _, plain, all_rows = train(None, steps)
    _, match, rows = train(sb.NonzeroRows(), steps)
    for first in range(0, steps, max(1, steps // 12)):
        print(f"step {first:3}: mean reward {plain[first]:.3f}, matched {match[first]:.3f}")
    print(f"{rows} of {all_rows} rows trained on")
