"""Nets of every kind whose activations can be reused, and a plain step to hold them against."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb

CANDIDATES, CLASSES = 12, 3
THIRD = sb.Strategy("sb", sb.scorers.Forward(training=True), sb.selectors.Percentile(beta=2))


class Flat(nn.Module):
    """Add up over time: `[time, candidate, ...]` or `[candidate, time, ...]` into logits."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, inputs: Tensor | tuple[Tensor, ...]) -> Tensor:
        return (inputs[0] if isinstance(inputs, tuple) else inputs).mean(self.axis)


class TimeFirst(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.transpose(0, 1)


class Attention(nn.Module):
    """Attention from one product for queries, keys and values, masked if asked to."""

    def __init__(self, width: int, *, masked: bool = False) -> None:
        super().__init__()
        self.mix, self.out, self.masked = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            masked,
        )

    def forward(self, inputs: Tensor) -> Tensor:
        count, time, width = inputs.shape
        mixed = self.mix(inputs).view(count, time, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mask = None
        if self.masked:  # a row's own: its first entry decides how far it sees
            reach = (inputs[:, :1, :1] > 0).to(inputs.dtype).mul(2).add(3)
            mask = (torch.arange(time).view(1, 1, time) < reach).unsqueeze(1)
        seen = functional.scaled_dot_product_attention(*mixed.unbind(), attn_mask=mask)
        return inputs + self.out(seen.transpose(1, 2).reshape(count, time, width))


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.layers(inputs)


class Coupled(nn.Module):
    """Let every row see the mean of all, by a share that can be changed."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self.share = share

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.share * inputs.mean(0)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3))


def mlp_in_place() -> nn.Module:
    relu = nn.ReLU(inplace=True)
    return nn.Sequential(nn.Linear(5, 8), relu, nn.Linear(8, 8, bias=False), relu, nn.Linear(8, 3))


def encoder(*, batch_first: bool, norm_first: bool = False) -> nn.Module:
    layers = [
        nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=batch_first, norm_first=norm_first
        )
        for _ in range(2)
    ]
    order = [] if batch_first else [TimeFirst()]
    return nn.Sequential(*order, *layers, Flat(1 if batch_first else 0), nn.Linear(8, 3))


def attention(*, masked: bool = False) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(8), Attention(8, masked=masked), Flat(1), nn.Linear(8, 3))


def recurrent(*, batch_first: bool) -> nn.Module:
    order = [] if batch_first else [TimeFirst()]
    net = nn.LSTM(8, 6, num_layers=2, batch_first=batch_first)
    return nn.Sequential(*order, net, Flat(1 if batch_first else 0), nn.Linear(6, 3))


def convolutional(
    norm: Callable[[int], nn.Module] = lambda width: nn.GroupNorm(2, width),
) -> nn.Module:
    def layer(before: int, after: int, stride: int = 1) -> list[nn.Module]:
        conv = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        return [conv, norm(after), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *layer(3, 4),
        Residual(*layer(4, 4), *layer(4, 4)),
        *layer(4, 8, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def zeroed() -> nn.Module:
    """A net in which whole branches are zero at first, so that any rows look like any others."""
    net = nn.Sequential(
        TimeFirst(),
        Residual(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)),
        nn.Linear(8, 8),
        nn.Tanh(),
        nn.Linear(8, 8),
        nn.Tanh(),
        Flat(0),
        nn.Linear(8, 3),
    )
    for layer in (net[1].layers[2], net[2], net[4]):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return net


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 5, bias=False)
        self.hidden = nn.Linear(5, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.hidden(self.hidden(inputs).tanh())
        return hidden @ self.embed.weight


def frozen() -> nn.Module:
    net = mlp()
    net[0].requires_grad_(False)
    return net


def frozen_encoder() -> nn.Module:
    net = encoder(batch_first=True)
    net[0].requires_grad_(False)
    return net


VECTORS, SEQUENCES, IMAGES = (5,), (7, 8), (3, 6, 6)


def candidates(shape: tuple[int, ...], seed: int, count: int = CANDIDATES) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, *shape, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(CLASSES, (count,), generator=generator)


@dataclass
class Pair:
    """The same net twice, trained by plain steps and by steps that reuse activations."""

    nets: tuple[nn.Module, nn.Module]
    steps: tuple[sb.SelectiveStep, sb.SelectiveStep]

    def take(self, batch: tuple[Tensor, Tensor]) -> float:
        """Step both, and return by how much losses and gradients differ, relative to them."""
        plain, reused = (step(batch) for step in self.steps)
        assert torch.equal(plain.rows, reused.rows)
        worst = _distance(plain.losses, reused.losses)
        for selected in (plain, reused):
            selected.loss.backward()
        for one, other in zip(*(net.parameters() for net in self.nets), strict=True):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is None:
                continue
            worst = max(worst, _distance(one.grad, other.grad))
            other.grad = one.grad.clone()  # so that the next step starts from the same weights
            for weights in (one, other):
                with torch.no_grad():
                    weights -= 0.1 * weights.grad
                weights.grad = None
        return worst

    @property
    def stats(self) -> sb.StepStats:
        return self.steps[1].stats


def pair(net: nn.Module, strategy: sb.Strategy = THIRD, *, seed: int = 0) -> Pair:
    nets = net, copy.deepcopy(net)
    generator = torch.Generator().manual_seed(seed)
    steps = tuple(
        sb.SelectiveStep(
            net, nn.CrossEntropyLoss(), strategy, reuse_activations=reuse, generator=generator
        )
        for net, reuse in zip(nets, (False, True), strict=True)
    )
    return Pair(nets, (steps[0], steps[1]))


def _distance(one: Tensor, other: Tensor) -> float:
    one, other = one.detach(), other.detach()
    return float((one - other).abs().max() / one.abs().max().clamp(min=1e-3))
