"""On a CUDA device: every way to score, and scoring and training under compilers and graphs."""

from collections.abc import Iterator
from typing import Any

import fixture_cuda
import pytest
import torch
from fixture_cuda import BATCH, WINDOW, make_loader, net, scored, take_step, train
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


def start(
    scorer: sb.scorers.AbstractScorer, model: nn.Module, device: str = "cuda"
) -> sb.scorers.RunningScorer:
    def losses(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    def outputs(model: nn.Module, batch: Any) -> Any:
        return model(batch[0]), batch[1]

    placed = torch.device("cuda", torch.cuda.current_device()) if device == "cuda" else None
    context = sb.scorers.Context(BATCH, WINDOW, model, losses, outputs, device=placed, rate=1 / 3)
    return scorer.start(context)


def windows(count: int = fixture_cuda.EXAMPLES // WINDOW) -> list[tuple[Tensor, ...]]:
    columns = fixture_cuda.examples().tensors
    return [tuple(column[i * WINDOW :][:WINDOW] for column in columns) for i in range(count)]


@pytest.mark.parametrize("name", SCORERS)
def test_scores_on_the_device_are_those_of_the_cpu(name):
    exact = SCORERS["error norm"] if name == "error norm" else sb.scorers.Forward()
    model, twin = net(), fixture_cuda.Net()
    twin.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    on_host = start(exact, twin, "cpu")
    expected = torch.cat([on_host.score(batch, None) for batch in windows()])
    running = start(SCORERS[name], model)
    batches = [tuple(column.cuda() for column in batch) for batch in windows()]
    found = torch.cat([running.score(batch, None) for batch in batches])
    assert (found.is_cuda, found.dtype) == (True, torch.float32)
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-3, atol=2e-3)


@COMPILED
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_losses_that_a_compiled_model_returns_are_kept_as_scores(mode):
    class Losses(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
            return functional.cross_entropy(self.model(inputs), targets, reduction="none")

    def begin(each: Any) -> sb.scorers.RunningScorer:
        losses, cuda = lambda model, batch: model(*batch), torch.device("cuda")
        return sb.scorers.Forward().start(
            sb.scorers.Context(BATCH, WINDOW, each, losses, device=cuda)
        )

    model = Losses(net())
    running, exact = begin(torch.compile(model, mode=mode, dynamic=False)), begin(model)
    batches = [tuple(column.cuda() for column in batch) for batch in windows(4)]
    for _ in range(3):  # graphs are captured at the second pass
        found = [running.score(batch, None) for batch in batches]
    expected = [exact.score(batch, None) for batch in batches]
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", SCORERS)
def test_every_scorer_trains_through_the_loader_and_no_host_waits(name):
    model = net()
    loader = make_loader(model, scored(fixture_cuda.EXACT["percentile"], SCORERS[name]))
    assert bool(torch.stack(fixture_cuda.train_without_waiting(model, loader)).isfinite().all())


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
    with fixture_cuda.no_waiting():
        for _ in range(len(loader) - 1):
            batch = next(batches)
            torch.compiler.cudagraph_mark_step_begin()
            take_step(compiled, optimizer, batch)
