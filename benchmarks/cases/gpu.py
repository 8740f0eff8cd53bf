"""Measurements of `scripts/gpu` besides `bench`: small steps, and answers without a gradient.

Times are wall seconds until the device is done. A `device` other than cuda is a rehearsal.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from benchmarks.case import Quantity, Rounds, case
from benchmarks.cases.small import PERCEPTRON, epoch

NONZERO = 1 / 4  # of the answers
Times = tuple[float, float]
STRATEGIES: dict[str, Callable[[], sb.Strategy]] = {
    "traditional": sb.traditional,
    "recorded": lambda: sb.recorded_sb(1 / 2),
    "auto": sb.auto,
    "infobatch": sb.infobatch,
    "selective": lambda: sb.selective_backprop(1 / 2),
}


def rounds(
    arms: Mapping[str, Callable[[], Times]], measure: str, unit: str = "ms", **about: Any
) -> Rounds:
    """Return rounds of arms that return two times; the first time, and its ratios, count."""
    first, *others = arms
    quantities = [Quantity(f"{first}, {measure}", lambda found: found[first][0], unit)]
    for name in others:
        ratio = partial(lambda name, found: found[name][0] / found[first][0], name)
        quantities.append(Quantity(f"{name} / {first}, {measure}", ratio))
    return Rounds(arms, quantities, about, known=False)


def times(steps: Callable[[], int], device: torch.device) -> Times:
    """Return the milliseconds of a step: until the device is done, and until all is queued.

    `steps` returns how many steps it took.
    """
    begun = time.perf_counter()
    taken = steps()
    queued = time.perf_counter()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - begun) / taken, 1e3 * (queued - begun) / taken


@case("src/selective_backprop/_loader", "src/selective_backprop/_pipeline")
def small(*, device: str = "cuda") -> Iterator[Rounds]:
    """A step of a perceptron through the loader, against one of the bare loop."""
    where = torch.device(device)
    arms = {"bare": partial(times, steps_of(None, where), where)}
    for name, make in STRATEGIES.items():
        arms[name] = partial(times, steps_of(make(), where), where)
    yield rounds(arms, "a step", device=device, batch_size=PERCEPTRON.batch)


def steps_of(strategy: sb.Strategy | None, device: torch.device) -> Callable[[], int]:
    """Return a function that trains for an epoch and returns the number of its steps."""
    model = PERCEPTRON.model().to(device)
    loader = PERCEPTRON.loader(pin_memory=device.type == "cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_fn: Any = nn.CrossEntropyLoss()
    selecting = None
    if strategy is not None:
        selecting = sb.SelectiveLoader(loader, model, loss_fn, strategy, epochs=1000, quiet=True)
        loss_fn = selecting.loss_fn

    def steps() -> int:
        moved = ([part.to(device, non_blocking=True) for part in batch] for batch in loader)
        return len(epoch(selecting or moved, model, loss_fn, optimizer, sb.Stopwatch()))

    steps()  # the first epoch finds things out
    return steps


class Policy(nn.Module):
    def __init__(self, width: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        block = nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, 0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return log-probabilities of each token but the first, `[row, token]`."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1] - 1, tokens.device)
        hidden = self.blocks(self.embedding(tokens[:, :-1]), mask, is_causal=True)
        logits = self.head(hidden).movedim(-1, 1)
        return -functional.cross_entropy(logits, tokens[:, 1:], reduction="none")


@case("src/selective_backprop/_rollouts")
def rollouts(
    *,
    width: int = 1024,
    layers: int = 8,
    length: int = 512,
    words: int = 32768,
    answers: int = 8,  # to each of as many prompts, and of a micro-batch
    device: str = "cuda",
) -> Iterator[Rounds]:
    """A GRPO update on answers with a gradient, or on half of them, against one on all."""
    where = torch.device(device)
    torch.manual_seed(0)
    policy = Policy(width, layers, words).to(where)
    rows = torch.randint(words, (answers * answers, length + 1), device=where)
    rewards = (torch.rand(answers, answers, device=where) < 0.5).float()
    rewards[round(NONZERO * answers) :] = 0.0  # whose answers are all wrong
    left_out = sb.NonzeroRows()
    half = torch.autocast(where.type, torch.bfloat16, enabled=where.type == "cuda")

    def update(kept: Tensor) -> int:
        advantages = torch.where(kept, rewards - rewards.mean(1, keepdim=True), 0.0).flatten()
        [(batch, _)] = left_out((rows, advantages), kept.flatten())
        for tokens, advantage in zip(*(part.split(answers) for part in batch), strict=True):
            with torch.no_grad(), half:
                before = policy(tokens)
            with half:
                ratios = (policy(tokens) - before).exp()
            (-(ratios.mean(1) * advantage).sum() / len(rows)).backward()
        policy.zero_grad()
        return 1

    informative = sb.informative(rewards)
    kept = {
        "all answers": torch.ones_like(informative),
        "those with a gradient": informative,
        "of these, half": informative & sb.max_variance(rewards, answers // 2),
    }
    arms = {name: partial(times, partial(update, rows), where) for name, rows in kept.items()}
    yield rounds(arms, "an update", device=device, share=NONZERO, width=width, length=length)
