"""On a CUDA device: every way to score, and scoring and training under compilers and graphs."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fixture_cuda import (
    BATCH,
    EXACT,
    EXAMPLES,
    WINDOW,
    Net,
    examples,
    make_loader,
    net,
    no_waiting,
    scored,
    take_step,
    train,
    train_without_waiting,
)
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb

pytestmark = pytest.mark.cuda
COMPILED = pytest.mark.cuda(real="a compiler and graphs")


@pytest.fixture(autouse=True)
def forget_what_was_compiled() -> Iterator[None]:
    """Compilers give up on code that they have met too often."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


SCORERS = {
    "forward": sb.scorers.Forward(),
    "error norm": sb.scorers.Forward(measure="error-norm"),
    "pipelined": sb.experimental.Pipelined(sb.scorers.Forward(), every=2, ahead=1, check=None),
}


def start(scorer: sb.scorers.AbstractScorer, model: nn.Module) -> sb.scorers.RunningScorer:
    def losses(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    def outputs(model: nn.Module, batch: Any) -> Any:
        return model(batch[0]), batch[1]

    device = torch.device("cuda", torch.cuda.current_device())
    return scorer.start(
        sb.scorers.Context(BATCH, WINDOW, model, losses, outputs, device=device, rate=1 / 3)
    )


@pytest.mark.parametrize("name", SCORERS)
def test_scores_on_the_device_are_those_of_the_cpu(name):
    exact = SCORERS["error norm"] if name == "error norm" else sb.scorers.Forward()
    columns = examples().tensors
    model = net()
    expected = torch.cat(
        [
            score_on_host(exact, model, tuple(column[i : i + WINDOW] for column in columns))
            for i in range(0, EXAMPLES, WINDOW)
        ]
    )
    running = start(SCORERS[name], model)
    found = torch.cat(
        [
            running.score(tuple(column[i : i + WINDOW].cuda() for column in columns), None)
            for i in range(0, EXAMPLES, WINDOW)
        ]
    )
    assert found.is_cuda
    assert found.dtype == torch.float32
    close = 5e-2 if "bf16" in name else 2e-3
    torch.testing.assert_close(found.cpu(), expected, rtol=close, atol=close)


def score_on_host(scorer: sb.scorers.Forward, model: nn.Module, batch: Any) -> Tensor:
    twin = Net()
    twin.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})

    def losses(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    def outputs(model: nn.Module, batch: Any) -> Any:
        return model(batch[0]), batch[1]

    return scorer.start(sb.scorers.Context(BATCH, WINDOW, twin, losses, outputs)).score(batch, None)


@COMPILED
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_losses_that_a_compiled_model_returns_are_kept_as_scores(mode):
    class Losses(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
            return functional.cross_entropy(self.model(inputs), targets, reduction="none")

    model = Losses(net())
    compiled: Any = torch.compile(model, mode=mode, dynamic=False)
    running, exact = (
        sb.scorers.Forward().start(
            sb.scorers.Context(
                BATCH, WINDOW, each, lambda model, batch: model(*batch), device=torch.device("cuda")
            )
        )
        for each in (compiled, model)
    )
    columns = [column.cuda() for column in examples().tensors]
    batches = [[c[i : i + WINDOW] for c in columns] for i in range(0, 4 * WINDOW, WINDOW)]
    for _ in range(3):  # graphs are captured at the second pass
        found = [running.score(batch, None) for batch in batches]
    expected = [exact.score(batch, None) for batch in batches]
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", SCORERS)
def test_every_scorer_trains_through_the_loader_and_no_host_waits(name):
    model = net()
    losses = train_without_waiting(
        model, make_loader(model, scored(EXACT["percentile"], SCORERS[name]))
    )
    assert bool(torch.stack(losses).isfinite().all())


def test_a_check_is_made_without_waiting_until_it_ends():
    check = sb.experimental.Check(batches=4, least=0.0)
    scorer = sb.experimental.Pipelined(sb.scorers.Forward(), every=2, ahead=1, check=check)
    model = net()
    loader = make_loader(model, scored(sb.selectors.Top(1 / 3), scorer))
    train(model, loader, epochs=2)
    assert loader.agreement is not None
    assert loader.agreement.overlap > 0.5


@COMPILED
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_model_scores_and_trains_as_one_that_is_not(mode):
    plain, twin = net(), net()
    expected = train(
        plain, make_loader(plain, scored(sb.selectors.Top(1 / 3)), losses=None), epochs=4
    )
    compiled = torch.compile(twin, mode=mode, dynamic=False)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    loader, found = make_loader(compiled, scored(sb.selectors.Top(1 / 3))), []
    for _ in range(4):
        for batch in loader:
            torch.compiler.cudagraph_mark_step_begin()
            found.append(take_step(compiled, optimizer, batch).clone())
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-2, atol=1e-2)


@COMPILED
def test_scoring_and_training_by_graphs_make_no_host_wait():
    model = net()
    compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
    loader = make_loader(compiled, scored(sb.selectors.Percentile(2.0)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):  # compiled in the first steps, and captured in those after them
        for batch in loader:
            torch.compiler.cudagraph_mark_step_begin()
            take_step(compiled, optimizer, batch)
    batches = iter(loader)
    take_step(compiled, optimizer, next(batches))
    with no_waiting():
        for _ in range(len(loader) - 1):
            batch = next(batches)
            torch.compiler.cudagraph_mark_step_begin()
            take_step(compiled, optimizer, batch)
