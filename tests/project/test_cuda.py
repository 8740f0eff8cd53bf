"""On a CUDA device: exact draws without a waiting host, copies ahead, memory and resuming."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import fixture_cuda as cuda
import pytest
import torch
from fixture_cuda import by_rule, examples, make_loader, net, no_waiting, scored, take_step, train
from fixture_loaders import Stateless
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

pytestmark = pytest.mark.cuda


def test_what_makes_the_host_wait_is_noticed():
    with pytest.raises(RuntimeError, match="synchroniz"), no_waiting():
        torch.ones(1, device="cuda").item()


@pytest.mark.parametrize(("rows", "nonfinite"), [(cuda.WINDOW, "raise"), (cuda.BATCH, "select")])
@pytest.mark.parametrize("name", cuda.EXACT)
def test_with_exact_draws_the_host_never_waits_within_an_epoch(name, nonfinite, rows):
    model, strategy = net(), scored(cuda.EXACT[name])
    reweights = strategy.selector.terms.reweights
    loader = make_loader(model, strategy, rows=rows, nonfinite=nonfinite, with_selection=reweights)
    losses = cuda.train_without_waiting(model, Unweighted(loader) if reweights else loader)
    assert len(losses) == cuda.EXAMPLES // cuda.WINDOW
    assert bool(torch.stack(losses).isfinite().all())


@dataclass
class Unweighted:
    """A loader whose batches come with their selection, which training leaves alone here."""

    loader: sb.SelectiveLoader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for batch, selection in self.loader:
            assert selection.weights.is_cuda
            yield batch


def test_a_loss_that_is_not_finite_raises_though_nobody_waited_for_it():
    passes: list[int] = []

    def losses(model: nn.Module, batch: Any) -> Tensor:
        passes.append(len(batch[0]))
        return by_rule(model, batch) * (
            1.0 if len(passes) <= cuda.EXAMPLES // cuda.WINDOW else torch.nan
        )

    loader = make_loader(net(), scored(sb.selectors.Top(1 / 3)), losses=losses)
    list(loader)
    with pytest.raises(sb.LossError, match="24 of 24"):
        list(loader)


def test_a_gate_takes_in_what_training_computed_without_waiting_for_it():
    spec = sb.VarianceGate(0.0, threshold=1.2)
    gate = spec.start(sb.selectors.Context(batch_size=cuda.BATCH, window=cuda.WINDOW))
    gate.observe(torch.tensor([1.0, 1.0], device="cuda"))
    scores = torch.tensor([1.0, 9.0], device="cuda")
    with no_waiting():
        for _ in range(cuda.WINDOW // cuda.BATCH):
            assert not gate.is_open
            gate.observe(scores)
        assert not gate.is_open  # what is on its way counts a window later
        gate.observe(scores)
    assert gate.is_open


@pytest.mark.skipif("made_up_cuda" not in sys.modules, reason="a real device tells no waits")
def test_an_open_gate_waits_for_no_device_that_is_a_training_batch_behind(monkeypatch):
    import made_up_cuda

    model = net()
    gate = sb.VarianceGate(0.0, probe_every=1, threshold=0.5)
    strategy = sb.kath18(schedule=sb.Schedule(gate=gate))
    loader = Unweighted(make_loader(model, strategy, rows=cuda.BATCH, with_selection=True))
    train(model, loader, epochs=1)
    monkeypatch.setattr(made_up_cuda, "BEHIND", 150)  # kernels; a training batch takes 190
    optimizer, batches = torch.optim.SGD(model.parameters(), lr=0.1), iter(loader)
    take_step(model, optimizer, next(batches))
    with made_up_cuda.watch() as seen:
        for _ in range(cuda.EXAMPLES // cuda.WINDOW - 1):
            take_step(model, optimizer, next(batches))
    assert not seen.waits
    assert loader.loader.stats.scored > cuda.EXAMPLES


def test_losses_that_are_not_finite_are_selected_first_without_waiting():
    def losses(model: nn.Module, batch: Any) -> Tensor:
        return by_rule(model, batch).where(batch[1] != 0, torch.inf)

    loader = make_loader(net(), scored(cuda.EXACT["percentile"]), losses=losses, nonfinite="select")
    list(loader)
    batches = iter(loader)
    found = [next(batches)]
    with no_waiting():
        found += [next(batches) for _ in range(len(loader) - 1)]
    for inputs, targets in found:
        assert len(inputs) == cuda.BATCH
        assert bool((targets == 0).any())


@pytest.mark.parametrize(
    "strategy", [sb.traditional(), sb.random_backprop(1 / 3), scored(sb.selectors.Top(1 / 3))]
)
@pytest.mark.parametrize("workers", [0, 2])
def test_where_no_draw_is_made_on_the_device_the_same_examples_come_as_on_the_cpu(
    strategy, workers
):
    losses = {} if strategy.scorer is None else {"losses": by_rule}
    loaders = (
        make_loader(nn.Identity(), strategy, device=device, workers=workers, **losses)
        for device in ("cpu", "cuda")
    )
    same_examples(*loaders)


def same_examples(*loaders: sb.SelectiveLoader, epochs: int = 2) -> None:
    for _ in range(epochs):
        expected, found = ([inputs.cpu() for inputs, _ in loader] for loader in loaders)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["percentile", "proportional"])
def test_a_draw_on_the_device_is_its_own_as_large_and_the_same_each_time(name):
    def run(device: str) -> list[list[float]]:
        options = {"device": device, "losses": by_rule, "with_selection": True}
        loader = make_loader(nn.Identity(), scored(cuda.EXACT[name]), **options)
        return [inputs[:, 0].tolist() for _ in range(2) for (inputs, _), _ in loader]

    once, again, on_host = run("cuda"), run("cuda"), run("cpu")
    assert once == again
    assert [len(batch) for batch in once] == [len(batch) for batch in on_host]


class Host(Stateless, sb.scorers.RunningScorer):
    """Scores batches on the host, on the device."""

    def score(self, batch: Any, indices: Any) -> Tensor:
        return batch[0][:, 0].cuda().exp()


@dataclass(frozen=True)
class OnDevice(sb.scorers.AbstractScorer):
    needs: ClassVar = sb.scorers.Needs(model=False)

    def start(self, context: Any) -> Host:
        return Host()


def test_without_a_model_batches_and_indices_on_the_host_keep_the_rows_that_scores_choose():
    inputs = torch.randn(cuda.EXAMPLES, 6, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(
        TensorDataset(inputs, torch.arange(cuda.EXAMPLES)), cuda.BATCH, shuffle=True
    )
    strategy = scored(sb.selectors.Top(1 / 3), OnDevice())
    selecting = sb.SelectiveLoader(loader, None, cuda.LOSS, strategy, with_selection=True)
    for (found, places), selection in selecting:
        assert selection.indices.equal(places)
        assert found.equal(inputs[places])


UNWARMED = sb.selective_backprop(1 / 3, warmup_epochs=0)
AHEAD = sb.experimental.Pipelined(sb.scorers.Forward(), 3, ahead=1, check=None)
STRATEGIES = {
    "percentile": UNWARMED,
    "stale": sb.stale_sb(1 / 3, epochs=2, schedule=sb.Schedule()),
    "pipelined": scored(sb.selectors.Percentile(2.0), AHEAD),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_training_goes_on_from_a_saved_state_as_if_it_had_never_stopped(name, tmp_path):
    model, other = net(), net()
    loader, resumed = (make_loader(each, STRATEGIES[name]) for each in (model, other))
    train(model, loader, epochs=2)
    torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, tmp_path / "state")
    expected = train(model, loader, epochs=2)
    state = torch.load(tmp_path / "state", weights_only=True)
    other.load_state_dict(state["model"])
    resumed.load_state_dict(state["loader"])
    found = train(other, resumed, epochs=2)
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-5, atol=1e-5)


def on(device: str, state: Any) -> Any:
    """Return a state as `torch.load(map_location=device)` does."""
    if isinstance(state, Tensor):
        return state.to(device)
    if isinstance(state, dict):
        return {key: on(device, value) for key, value in state.items()}
    many = type(state) in (list, tuple)
    return type(state)(on(device, each) for each in state) if many else state


@pytest.mark.parametrize("name", ["percentile", "stale"])
def test_a_state_of_the_middle_of_an_epoch_may_be_on_any_device(name):
    for device in ("cpu", "cuda"):
        whole, resumed = (make_loader(net(), STRATEGIES[name]) for _ in range(2))
        list(whole)
        batches = iter(whole)
        next(batches)
        resumed.load_state_dict(on(device, whole.state_dict()))
        for (inputs, _), (wanted, _) in zip(resumed, batches, strict=True):
            assert torch.equal(inputs.cpu(), wanted.cpu())


def test_the_loss_of_cast_targets_makes_the_host_wait_for_nothing():
    model = nn.Linear(6, 1).cuda()
    batches, strategy = DataLoader(examples(), cuda.BATCH), sb.recorded_sb(1 / 3)
    loader = sb.SelectiveLoader(batches, model, nn.L1Loss(), strategy, quiet=True)
    loss_fn = loader.loss_fn
    for inputs, targets in loader:
        with no_waiting():
            loss_fn(model(inputs).squeeze(1), targets.float())
    assert loader.ledger.recorded.complete


@pytest.mark.parametrize(("name", "workers"), [("stale", 0), ("percentile", 2)])
def test_no_host_waits_in_a_stale_epoch_or_with_workers_and_nothing_is_left_by_a_break(
    name, workers
):
    model = net()
    loader = make_loader(model, STRATEGIES[name], workers=workers)
    cuda.train_without_waiting(model, loader)
    for _ in range(2):
        for inputs, _ in loader:
            assert inputs.is_cuda
            break
    assert sum(1 for _ in loader) >= cuda.EXAMPLES // cuda.WINDOW


def test_autocast_around_the_loop_trains_in_bf16():
    model = net()
    for inputs, targets in make_loader(model, UNWARMED):
        model.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        assert model.head.weight.grad is not None


def test_a_stopwatch_charges_the_device_with_what_it_did_and_the_phases_are_all_the_time():
    stopwatch, model = sb.Stopwatch(torch.device("cuda")), net()
    loader = make_loader(model, UNWARMED, stopwatch=stopwatch)
    began = time.perf_counter()
    stopwatch.start()
    train(model, loader, epochs=1)
    stopwatch.stop()
    assert 0 < stopwatch.total <= time.perf_counter() - began
    assert {"load", "score", "select", "other"} <= stopwatch.seconds.keys()
    assert sum(stopwatch.seconds.values()) == stopwatch.total
    stopwatch.go_on({"load": 1.0})
    assert stopwatch.seconds == {"load": 1.0}


def test_a_stopwatch_holds_a_bounded_number_of_events(monkeypatch):
    monkeypatch.setattr("selective_backprop._core.stopwatch._HELD", 8)
    stopwatch = sb.Stopwatch(torch.device("cuda"))
    stopwatch.start()
    for _ in range(100):
        with stopwatch.phase("load"):
            torch.ones(1, device="cuda").add_(1)
        torch.cuda.synchronize()
    assert len(stopwatch._open) <= 8
    assert stopwatch.seconds["load"] > 0


@pytest.mark.parametrize("strategy", [sb.random_backprop(1 / 2), sb.traditional()])
def test_a_step_that_does_not_score_selects_rows_on_the_device(strategy):
    inputs, targets = (part.cuda() for part in examples()[:16])
    selected = sb.SelectiveStep(net(), cuda.LOSS, strategy)((inputs, targets))
    assert selected.losses.device == inputs.device
    assert len(selected.rows) == round(16 * strategy.selector.terms.rate)


@pytest.mark.parametrize("nonzero", [[True, False, True, False, False], [False] * 3], ids=str)
def test_rows_of_gradient_zero_are_left_out_on_the_device(nonzero):
    worth, numbers = torch.tensor(nonzero, device="cuda"), torch.arange(len(nonzero)).cuda()
    [((kept, _), selection)] = sb.NonzeroRows()((numbers, worth), worth.float())
    assert selection.weights.is_cuda
    assert kept.tolist() == (worth.nonzero()[:, 0].tolist() or [0])


@pytest.mark.parametrize("strategy", [sb.traditional(), sb.selective_backprop(1 / 3)])
@pytest.mark.parametrize("where", ["pinned", "host", "device"])
def test_where_batches_are_not_in_pinned_memory_the_first_one_says_so(where, strategy, capsys):
    columns = [each.cuda() if where == "device" else each for each in examples().tensors]
    loader = DataLoader(TensorDataset(*columns), cuda.BATCH, pin_memory=where == "pinned")
    for _ in range(2):
        next(iter(sb.SelectiveLoader(loader, net(), cuda.LOSS, strategy)))
    assert capsys.readouterr().err.count("pin_memory=True") == 2 * (where == "host")


def without_targets(device: str, where: slice, **options: Any) -> sb.SelectiveLoader:
    """Return a loader on a device; some of the examples of a part of the data lack a target."""
    inputs, targets = examples().tensors
    targets[where][::2] = -100
    placed = options.pop("on_device", False) and device == "cuda"
    columns = [each.to(device) if placed else each for each in (inputs, targets)]
    loader = DataLoader(TensorDataset(*columns), cuda.BATCH, pin_memory=not placed)
    torch.manual_seed(0)
    model, defaults = nn.Linear(6, 3).to(device), {"generator": torch.Generator().manual_seed(3)}
    return sb.SelectiveLoader(loader, model, cuda.LOSS, quiet=True, **(defaults | options))


def pairs(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    return model(batch[0]), batch[1]


@pytest.mark.skipif("made_up_cuda" not in sys.modules, reason="a real device draws its own numbers")
@pytest.mark.parametrize(
    ("strategy", "how"),
    [
        *((UNWARMED, how) for how in ({}, {"on_device": True}, {"outputs": pairs})),
        (sb.top_k(1 / 3), {}),
        (STRATEGIES["stale"], {}),
        (sb.kath18(measure="loss", bias=0.0, schedule=sb.Schedule()), {"on_device": True}),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, dict) else each.name,
)
def test_examples_without_a_target_are_kept_as_on_the_cpu_wherever_they_come(strategy, how):
    for where in (slice(0, 24), slice(40, 96)):
        loaders = (
            without_targets(each, where, strategy=strategy, **how) for each in ("cpu", "cuda")
        )
        same_examples(*loaders, epochs=3)


def test_a_loaded_state_knows_which_waiting_examples_lack_a_target():
    options = {"strategy": UNWARMED, "batch_size": 5}  # windows of 15 cut batches of 8
    whole = without_targets("cuda", slice(0, 32), **options)
    batches = iter(whole)
    next(batches), next(batches)
    resumed = without_targets("cuda", slice(0, 0), **options)
    resumed.load_state_dict(whole.state_dict())  # examples 30 and 31 wait
    first, wanted = next(iter(resumed))[0], next(batches)[0]
    assert first.cpu().equal(wanted.cpu())
