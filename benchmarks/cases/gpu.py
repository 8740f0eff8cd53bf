"""What `scripts/gpu` measures beside `bench`: small steps, and rows of gradient zero.

Seconds are the wall's, once the device is done. On another `device` it is a rehearsal.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from benchmarks.case import Quantity, Rounds, case

EXAMPLES, FEATURES, CLASSES, BATCH = 8192, 784, 10, 128
NONZERO = 1 / 4  # of the rows
STRATEGIES: dict[str, Callable[[], sb.Strategy]] = {
    "traditional": sb.traditional,
    "recorded": lambda: sb.recorded_sb(1 / 2),
    "auto": sb.auto,
    "infobatch": sb.infobatch,
    "selective": lambda: sb.selective_backprop(1 / 2),
}
EPOCHS = 1000  # that a strategy is told of


def rounds(
    arms: Mapping[str, Callable[[], float]], measure: str, unit: str = "ms", **about: Any
) -> Rounds:
    """Return rounds of arms that return a number of units; each is told in those of the first."""
    first = next(iter(arms))
    quantities = [Quantity(f"{first}, {measure}", lambda found: found[first], unit)]
    for name in list(arms)[1:]:

        def ratio(found: Mapping[str, float], name: str = name) -> float:
            return found[name] / found[first]

        quantities.append(Quantity(f"{name} / {first}, {measure}", ratio))
    return Rounds(arms, quantities, about, known=False)


def milliseconds(steps: Callable[[], int], device: torch.device) -> float:
    """Return what one of the steps took that were taken."""
    begun = time.perf_counter()
    taken = steps()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - begun) / taken


@case("src/selective_backprop/_loader", "src/selective_backprop/_pipeline")
def small(*, device: str = "cuda") -> Iterator[Rounds]:
    """A step of a perceptron through the loader, against one of the bare loop."""
    where = torch.device(device)
    arms = {"bare": partial(milliseconds, bare(where), where)}
    for name, make in STRATEGIES.items():
        arms[name] = partial(milliseconds, selective(make(), where), where)
    yield rounds(arms, "a step", device=device, batch_size=BATCH)


def parts(device: torch.device) -> tuple[nn.Module, DataLoader[Any], torch.optim.Optimizer]:
    """Return a net, a loader, in pinned memory for a device, and an optimiser."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES)).to(device)
    data = TensorDataset(torch.randn(EXAMPLES, FEATURES), torch.randint(CLASSES, (EXAMPLES,)))
    loader = DataLoader(data, BATCH, shuffle=True, pin_memory=device.type == "cuda")
    return model, loader, torch.optim.SGD(model.parameters(), lr=0.01)


def bare(device: torch.device) -> Callable[[], int]:
    """Return what trains an epoch, and returns its steps."""
    model, loader, optimizer = parts(device)
    loss_fn = nn.CrossEntropyLoss()

    def epoch() -> int:
        for batch in loader:
            inputs, targets = (part.to(device, non_blocking=True) for part in batch)
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
        return len(loader)

    return epoch


def selective(strategy: sb.Strategy, device: torch.device) -> Callable[[], int]:
    """Return the same with a strategy."""
    model, loader, optimizer = parts(device)
    selecting = sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), strategy, epochs=EPOCHS, quiet=True
    )
    loss_fn = selecting.loss_fn

    def epoch() -> int:
        steps = 0
        for inputs, targets in selecting:
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
            steps += 1
        return steps

    epoch()  # the first finds things out
    return epoch


def loss_step(loss: Callable[[], Tensor], device: torch.device) -> float:
    """Return the milliseconds of a loss and its gradients."""

    def step() -> int:
        loss().backward()
        return 1

    return milliseconds(step, device)


@case("src/selective_backprop/_rollouts/nonzero_rows.py")
def nonzero(*, width: int = 2048, rows: int = 8192, device: str = "cuda") -> Iterator[Rounds]:
    """A step on the rows that have a gradient, against one on all, of which most have none."""
    where = torch.device(device)
    torch.manual_seed(0)
    layers = [nn.Linear(width, width), nn.ReLU()] * 4
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES)).to(where)
    worth = (torch.rand(rows, device=where) < NONZERO).float()
    batch = torch.randn(rows, width, device=where), worth
    left_out = sb.NonzeroRows()

    def losses(inputs: Tensor, worth: Tensor) -> Tensor:
        return worth * model(inputs).square().mean(1)

    def ours() -> Tensor:
        [(kept, selection)] = left_out(batch, worth)
        return (selection.weights * losses(*kept)).mean()

    arms = {"all rows": lambda: losses(*batch).mean(), "NonzeroRows": ours}
    times = {name: partial(loss_step, loss, where) for name, loss in arms.items()}
    yield rounds(times, "a step", device=device, share=NONZERO)


class Policy(nn.Module):
    """A causal transformer over words."""

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


@case(
    "src/selective_backprop/_rollouts/nonzero_rows.py",
    "src/selective_backprop/_rollouts/answers.py",
)
def rollouts(
    *,
    width: int = 1024,
    layers: int = 8,
    length: int = 512,
    words: int = 32768,
    prompts: int = 8,
    answers: int = 8,
    micro: int = 8,
    device: str = "cuda",
) -> Iterator[Rounds]:
    """A GRPO update on answers with a gradient, or on half of them, against one on all."""
    where = torch.device(device)
    torch.manual_seed(0)
    policy = Policy(width, layers, words).to(where)
    rows = torch.randint(words, (prompts * answers, length + 1), device=where)
    rewards = (torch.rand(prompts, answers, device=where) < 0.5).float()
    rewards[round(NONZERO * prompts) :] = 0.0  # whose answers are all wrong
    left_out = sb.NonzeroRows()

    def update(kept: Tensor) -> float:
        advantages = torch.where(kept, rewards - rewards.mean(1, keepdim=True), 0.0).flatten()

        def step() -> int:
            [(batch, _)] = left_out((rows, advantages), kept.flatten())
            for tokens, advantage in zip(*(part.split(micro) for part in batch), strict=True):
                with torch.no_grad(), half(where, where.type == "cuda"):
                    before = policy(tokens)
                with half(where, where.type == "cuda"):
                    ratios = (policy(tokens) - before).exp()
                (-(ratios.mean(1) * advantage).sum() / len(rows)).backward()
            policy.zero_grad()
            return 1

        return milliseconds(step, where)

    arms = {
        "all answers": partial(update, torch.ones_like(rewards, dtype=torch.bool)),
        "those with a gradient": partial(update, sb.informative(rewards)),
        "of these, half": partial(
            update, sb.informative(rewards) & sb.max_variance(rewards, answers // 2)
        ),
    }
    yield rounds(arms, "an update", device=device, share=NONZERO, width=width, length=length)


def half(device: torch.device, enabled: bool) -> torch.autocast:
    """Return autocast to bfloat16, or nothing."""
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)
