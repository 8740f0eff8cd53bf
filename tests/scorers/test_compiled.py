"""A model that the user compiled scores and trains as the one inside does."""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Any

import pytest
import torch
from fixture_loaders import NotedSampler, fixture_data, fresh_net, same_tensors
from fixture_loaders import cross_entropies as losses
from fixture_open_batch import CHANGES, EXAMPLES, LABELS, Loop
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb

BATCH = fixture_data().tensors
STRATEGY = sb.selective_backprop(1 / 2, warmup_epochs=0)


@pytest.fixture(autouse=True)
def forget_what_was_compiled():
    torch.compiler.reset()


class Watched(nn.Module):
    """A model that adds 1 where it is compiled and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = fresh_net()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return self.inner(inputs) + torch.compiler.is_compiling()


def start(scorer: sb.scorers.AbstractScorer, model: nn.Module) -> sb.scorers.RunningScorer:
    return scorer.start(sb.scorers.Context(8, 16, model, losses, rate=1 / 2))


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def unlike(model: nn.Module) -> nn.Module:
    """Put a part of a model in another mode than the rest."""
    model.layers[1].eval()
    return model


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def by_loader(model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what is selected, and its loss."""
    loader = sb.SelectiveLoader(
        DataLoader(fixture_data(), 5, sampler=NotedSampler(40)),
        model,
        nn.CrossEntropyLoss(),
        STRATEGY,
        with_selection=True,
        generator=torch.Generator().manual_seed(0),
    )
    for (inputs, targets), selection in chain(loader, loader):
        yield selection.indices, functional.cross_entropy(model(inputs), targets)


def train(batches: Iterator[tuple[Tensor, Tensor]], net: nn.Module) -> list[Any]:
    """Return what is selected, and the modes in which it is trained on."""
    optimizer, found = torch.optim.SGD(net.parameters(), lr=0.5), []
    torch.manual_seed(0)
    for rows, loss in batches:
        found.append((rows.tolist(), modes(net)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found


def test_it_selects_and_trains_as_the_model_inside_does_in_the_modes_that_were_set():
    model, other = unlike(fresh_net()), unlike(fresh_net())
    expected = modes(model)
    found = train(by_loader(compiled(model)), model)
    assert found == train(by_loader(other), other)
    assert len(found) >= 6
    assert all(each == expected for _, each in found)
    assert same_tensors(model.state_dict(), other.state_dict())


def test_the_selection_pass_is_compiled_once_for_batches_of_one_size():
    model, counted = Watched().eval(), torch._dynamo.utils.counters["stats"]
    running, exact = (start(sb.scorers.Forward(), each) for each in (compiled(model), model))
    before = counted["unique_graphs"]
    for _ in range(4):
        running.score(BATCH, None)
        exact.score(BATCH, None)
    assert counted["unique_graphs"] == before + 1


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which the compiler reads
@pytest.mark.parametrize("strategy", [sb.traditional(), sb.auto()], ids=lambda each: each.name)
def test_a_step_is_compiled_once_whatever_the_loaders_loss_records(strategy):
    model, counted = fresh_net(), torch._dynamo.utils.counters["stats"]
    loader = sb.SelectiveLoader(
        DataLoader(fixture_data(), 4), model, nn.CrossEntropyLoss(), strategy, quiet=True
    )
    loss_fn, before = loader.loss_fn, counted["unique_graphs"]

    @compiled
    def step(inputs: Tensor, targets: Tensor) -> None:
        loss_fn(model(inputs), targets).backward()

    with unhooked():
        for _ in range(2):
            for inputs, targets in loader:
                step(inputs, targets)
    assert counted["unique_graphs"] == before + 1


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("change", ["as they are", "float", "one-hot", "copied"])
def test_a_compiled_step_records_each_loss_for_its_own_example_or_is_refused(change):
    loop = Loop(sb.recorded_sb(1 / 2), LABELS["bytes"], CHANGES[change])

    @compiled
    def step(names: Tensor, labels: Tensor) -> None:
        loop.loss_fn(loop.model(2.0 * names) / 2.0, CHANGES[change](labels))

    with unhooked(), pytest.raises(sb.LossError) if change == "copied" else nullcontext():
        for (names, labels), _ in loop.loader:
            step(names, labels)
    assert loop.check() == (0 if change == "copied" else EXAMPLES)
