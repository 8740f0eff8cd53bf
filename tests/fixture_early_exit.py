"""An early exit of a small net, its head, and a door that scores with it."""

from collections.abc import Iterable
from typing import Any

import torch
from fixture_doors import NotedSampler, fixture_data
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

import selective_backprop as sb

BATCHES = [
    (inputs, (inputs.sum(1) > 0).long())
    for inputs in torch.randn(5, 6, 2, generator=torch.Generator().manual_seed(0))
]


def make_head() -> nn.Module:
    head = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
    generator = torch.Generator().manual_seed(3)
    for parameter in head.parameters():
        nn.init.normal_(parameter, generator=generator)
    return head


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def losses(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def early(**options: Any) -> sb.scorers.EarlyExit:
    given = {"after": "layers.1", "make_head": make_head, "check": None} | options
    return sb.scorers.EarlyExit(make_optimizer=momentum, **given)


def start(scorer: sb.scorers.AbstractScorer, model: nn.Module, **options: Any) -> Any:
    given: dict[str, Any] = {"losses": losses} | options
    return scorer.start(sb.scorers.Context(6, 18, model, **given))


def door(model: nn.Module, scorer: sb.scorers.AbstractScorer, **options: Any) -> sb.SelectiveLoader:
    rate, warmup = options.pop("rate", 1 / 2), options.pop("warmup_epochs", 1)
    loader = DataLoader(fixture_data(), 6, sampler=NotedSampler(40))
    strategy = options.pop("strategy", None) or sb.selective_backprop(
        rate, scorer=scorer, warmup_epochs=warmup
    )
    generator = torch.Generator().manual_seed(0)
    return sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), strategy, generator=generator, **options
    )
