"""Every strategy trains on a CUDA device; on a made-up one it makes the CPU's choices."""

import sys
from collections.abc import Callable

import pytest
import torch
from discovery import strategies
from fixture_cuda import BATCH, EXAMPLES, Net, examples
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb

pytestmark = pytest.mark.cuda
EPOCHS = 4


def subset() -> sb.Subset:
    return sb.Subset(torch.arange(0, EXAMPLES, 2), EXAMPLES)


def proxy() -> sb.Strategy:
    return sb.proxy_sb(Net, lambda parameters: torch.optim.SGD(parameters, lr=0.1), rate=1 / 3)


OPEN = sb.Schedule(gate=sb.VarianceGate(smoothing=0.5, threshold=1.01))
MADE: dict[str, Callable[[], sb.Strategy]] = {
    "auto, stream": lambda: sb.auto(stream=True, schedule=sb.Schedule()),
    "diet_sb": lambda: sb.diet_sb(subset(), 1 / 3),
    "kath18": lambda: sb.kath18(schedule=OPEN),
    "proxy_sb": proxy,
    "pruned": lambda: sb.pruned(subset()),
    "rho_loss": lambda: sb.rho_loss(torch.linspace(0.0, 1.0, EXAMPLES), 1 / 3),
    **{name: getattr(sb, name) for name in ("auto", "easy_skip", "infobatch")},
    **{name: getattr(sb, name) for name in ("kakurenbo", "tail_sft", "traditional")},
}


def train(name: str, device: str) -> tuple[list[Tensor], sb.Stats]:
    make = MADE.get(name) or (lambda: getattr(sb, name)(1 / 3))
    torch.manual_seed(0)
    model, order = Net().to(device), torch.Generator().manual_seed(2)
    loader = DataLoader(examples(), BATCH, shuffle=True, generator=order, pin_memory=True)
    options = {"generator": torch.Generator().manual_seed(3), "epochs": EPOCHS, "quiet": True}
    selecting = sb.SelectiveLoader(loader, model, nn.CrossEntropyLoss(), make(), **options)
    optimizer, loss_fn, found = torch.optim.SGD(model.parameters(), lr=0.1), selecting.loss_fn, []
    for _ in range(EPOCHS):
        for inputs, targets in selecting:
            assert inputs.device.type == targets.device.type == device
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
            found.append(inputs)
    return [*found, *(weights.detach() for weights in model.parameters())], selecting.stats


@pytest.mark.parametrize("name", sorted({*strategies(), *MADE}))
def test_every_strategy_trains_on_the_device_on_what_it_would_on_the_cpu(name):
    found, counts = train(name, "cuda")
    assert all(bool(each.isfinite().all()) for each in found)
    # A made-up device has the CPU's sums and random streams; a gate opens a batch later on CUDA.
    if "made_up_cuda" in sys.modules and name != "kath18":
        expected, others = train(name, "cpu")
        assert counts == others
        torch.testing.assert_close([each.cpu() for each in found], expected, rtol=0, atol=0)
