"""GRPO on a toy: answer with three digits reversed; groups of equal rewards cost no training."""

import sys
import time

import torch
from torch import Tensor, nn

import selective_backprop as sb

DIGITS, LENGTH, WIDTH = 6, 3, 64
PROMPTS, GROUP = 16, 8  # of each step, and answers to each prompt
UPDATES = 2  # on the answers of each step, the second of them clipped


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


def train(
    nonzero: sb.NonzeroRows | None, steps: int, seed: int = 0
) -> tuple[Policy, list[float], int, float]:
    """Return the policy, each step's mean reward, the rows trained on, and CPU seconds."""
    torch.manual_seed(seed)
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    rewarded, trained, started = [], 0, time.process_time()
    for _ in range(steps):
        prompts = torch.randint(DIGITS, (PROMPTS, LENGTH), generator=generator)
        rows = roll_out(policy, prompts, generator)
        rewards = reward(rows)
        rewarded.append(rewards.mean().item())
        advantages, weights = standardized(rewards).flatten(), torch.ones(len(rows))
        if nonzero is not None:
            batch, teaches = (rows, advantages), sb.informative(rewards).flatten()
            [((rows, advantages), selection)] = nonzero(batch, teaches)
            weights = selection.weights
        with torch.no_grad():
            before = policy.answer_logs(rows)
        update(policy, optimizer, rows, advantages, weights, before)
        trained += len(rows)
    return policy, rewarded, trained, time.process_time() - started


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    _, plain, all_rows, whole = train(None, steps)
    _, match, rows, less = train(sb.NonzeroRows(), steps)
    for first in range(0, steps, max(1, steps // 12)):
        print(f"step {first:3}: mean reward {plain[first]:.3f}, matched {match[first]:.3f}")
    print(f"{rows} of {all_rows} rows trained on, {less:.1f} of {whole:.1f} CPU seconds")
