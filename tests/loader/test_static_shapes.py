"""Candidate batches as large as a window: one pass each, and every batch of one shape."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from unhooked import unhooked

import selective_backprop as sb

BATCH, WINDOW, WINDOWS, EPOCHS = 4, 12, 3, 4


EXACT = {
    "percentile": sb.selectors.Percentile(2.0),
    "top": sb.selectors.Top(1 / 3),
    "bottom": sb.selectors.Bottom(1 / 3),
    "uniform": sb.selectors.Uniform(1 / 3),
    "proportional": sb.selectors.Proportional(presample=3.0, bias=0.0),
}


class Net(nn.Module):
    """A net whose modes differ, so that scoring and training are not the same graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


def make_loader(model: nn.Module, strategy: sb.Strategy, **options: Any) -> sb.SelectiveLoader:
    generator = torch.Generator().manual_seed(0)
    # 5 more than whole windows, so that there is something to leave out
    inputs = torch.randn(WINDOWS * WINDOW + 5, 3, generator=generator)
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    loader = DataLoader(data, WINDOW, shuffle=True, drop_last=True, generator=generator)
    return sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), strategy, batch_size=BATCH, **options
    )


def train(
    model: Callable[[Tensor], Tensor],
    parameters: list[nn.Parameter],
    loader: sb.SelectiveLoader,
    epochs: int = EPOCHS,
) -> list[tuple[int, ...]]:
    """Train, and return the shapes of what was trained on."""
    optimizer, shapes = torch.optim.SGD(parameters, lr=0.1), []
    for _ in range(epochs):
        for inputs, targets in loader:
            shapes.append((*inputs.shape, *targets.shape))
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    return shapes


def scored(selector: sb.selectors.AbstractSelector) -> sb.Strategy:
    return sb.Strategy("exact", sb.scorers.Forward(), selector)


@pytest.mark.parametrize("name", EXACT)
def test_each_window_is_scored_in_one_pass_and_all_training_batches_have_one_shape(name):
    model, passes = Net(), []

    def losses(model: nn.Module, batch: Any) -> Tensor:
        passes.append(tuple(batch[0].shape))
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    strategy = scored(EXACT[name])
    loader = make_loader(model, strategy, losses=losses)
    shapes = train(model, list(model.parameters()), loader)
    assert len(shapes) == EPOCHS * WINDOWS
    assert set(shapes) == {(BATCH, 3, BATCH)}
    assert set(passes) == {(WINDOW, 3)}
    assert len(passes) == EPOCHS * WINDOWS


def test_a_window_in_pieces_takes_a_pass_for_each():
    passes = []
    model = Net()
    model.register_forward_hook(
        lambda net, inputs, _: passes.append((len(inputs[0]), net.training))
    )
    inputs = torch.randn(WINDOWS * WINDOW, 3)
    loader = DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), BATCH)
    selecting = sb.SelectiveLoader(
        loader, model, nn.CrossEntropyLoss(), scored(sb.selectors.Top(1 / 3))
    )
    train(model, list(model.parameters()), selecting, epochs=1)
    assert Counter(passes) == {(BATCH, False): 3 * WINDOWS, (BATCH, True): WINDOWS}


@pytest.fixture
def graphs():
    """What was compiled: the rows of each graph's inputs, and whether with gradients."""
    found: list[tuple[int, bool]] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        (batch,) = (each for each in inputs if tuple(each.shape) in ((BATCH, 3), (WINDOW, 3)))
        found.append((len(batch), torch.is_grad_enabled()))
        return graph.forward

    torch.compiler.reset()
    yield found, count
    torch.compiler.reset()


@pytest.mark.parametrize(
    "strategy",
    [
        *(scored(EXACT[name]) for name in ("percentile", "proportional")),
        sb.selective_backprop(1 / 3),
    ],
    ids=["percentile", "proportional", "warm-up"],
)
def test_a_compiled_model_is_compiled_once_for_scoring_and_once_for_training(strategy, graphs):
    found, count = graphs
    model = Net()
    compiled = torch.compile(model, backend=count, dynamic=False)
    with unhooked():  # as users run it
        shapes = train(compiled, list(model.parameters()), make_loader(compiled, strategy))
    assert set(shapes) == {(BATCH, 3, BATCH)}
    assert sorted(found) == [(BATCH, True), (WINDOW, False)]
