"""Reused activations give the plain step's gradients, whatever the net; or are not reused."""

import itertools
from collections.abc import Callable
from typing import Any

import fixture_reuse as nets
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import selective_backprop as sb
from selective_backprop.experimental._reuse import activations as _reuse
from selective_backprop.experimental._reuse.fingerprints import (
    Fingerprints,
    full_precision,
    plan_reading,
    same_rows,
)
from selective_backprop.experimental._reuse.operations import Operation

EXACT = 1e-12


@pytest.fixture(autouse=True)
def _small_and_seeded(monkeypatch):
    """Small nets are enough: what they compute is reused too, though it gains nothing."""
    monkeypatch.setattr("selective_backprop.experimental._reuse.operations.WORTHWHILE", 0)
    torch.manual_seed(0)


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (nets.mlp, nets.VECTORS),
    "in-place activations": (nets.mlp_in_place, nets.VECTORS),
    "tied weights": (nets.Tied, nets.VECTORS),
    "a frozen part": (nets.frozen, nets.VECTORS),
    "a frozen encoder": (nets.frozen_encoder, nets.SEQUENCES),
    "encoder, batch first": (lambda: nets.encoder(batch_first=True), nets.SEQUENCES),
    "encoder, time first": (lambda: nets.encoder(batch_first=False), nets.SEQUENCES),
    "encoder, norm first": (
        lambda: nets.encoder(batch_first=False, norm_first=True),
        nets.SEQUENCES,
    ),
    "encoder in eval mode": (lambda: nets.encoder(batch_first=True).eval(), nets.SEQUENCES),
    "attention": (nets.attention, nets.SEQUENCES),
    "masked attention": (lambda: nets.attention(masked=True), nets.SEQUENCES),
    "lstm, batch first": (lambda: nets.recurrent(batch_first=True), nets.SEQUENCES),
    "lstm, time first": (lambda: nets.recurrent(batch_first=False), nets.SEQUENCES),
    "resnet": (nets.convolutional, nets.IMAGES),
    "zeroed layers": (nets.zeroed, nets.SEQUENCES),
    "spectral norm": (
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(5, 8)), nn.Linear(8, 3)),
        nets.VECTORS,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_plain_steps_and_nothing_is_computed_twice(kind: str) -> None:
    make, shape = KINDS[kind]
    both = nets.pair(make().double())
    assert both.take(nets.candidates(shape, 0)) < EXACT
    tried = both.stats
    assert tried.reused == 0, "the first step is for trials"
    for seed in range(1, 4):
        assert both.take(nets.candidates(shape, seed)) < EXACT
    assert both.stats.reused == both.stats.operations - tried.operations
    assert both.stats.strayed == 0


def test_channels_last_stays_channels_last_and_exact() -> None:
    both = nets.pair(nets.convolutional().double().to(memory_format=torch.channels_last))
    seen: list[bool] = []
    both.nets[1][0].register_forward_hook(
        lambda net, inputs, outputs: seen.append(
            outputs.is_contiguous(memory_format=torch.channels_last)
        )
    )
    for seed in range(3):
        inputs, targets = nets.candidates(nets.IMAGES, seed)
        batch = inputs.contiguous(memory_format=torch.channels_last), targets
        assert both.take(batch) < EXACT
    assert both.stats.reused_share == pytest.approx(2 / 3)
    assert all(seen)


def test_autocast_trains_as_the_plain_step_does() -> None:
    both = nets.pair(nets.encoder(batch_first=True).float())
    for seed in range(3):
        inputs, targets = nets.candidates(nets.SEQUENCES, seed)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            plain, reused = (step((inputs.float(), targets)) for step in both.steps)
        assert torch.equal(plain.rows, reused.rows)
        torch.testing.assert_close(plain.losses, reused.losses, rtol=2e-2, atol=2e-2)
        for selected in (plain, reused):
            selected.loss.backward()
        for one, other in zip(*(net.parameters() for net in both.nets), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            assert (one.grad - other.grad).norm() <= 0.02 * one.grad.norm() + 1e-6
            one.grad = other.grad = None
    assert both.stats.reused_share == pytest.approx(2 / 3)


class Alternating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        return self.layers[self.calls % 2](inputs)[:, :3]


class Between(nn.Module):
    """Two layers, and something that happens between them."""

    def __init__(self, happens: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.happens = nn.Linear(5, 8), nn.Linear(8, 3), happens

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.happens(self.first(inputs)))


def stray(hidden: Tensor) -> Tensor:
    return hidden @ torch.eye(8, dtype=hidden.dtype) if torch.is_grad_enabled() else hidden


def write_by_views(hidden: Tensor) -> Tensor:
    hidden.view(-1)[::2].mul_(3.0)
    hidden[:, :2] = 0.5
    return hidden


class Thrifty(nn.Module):
    """Computes activations anew for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nets.attention(), nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(checkpoint(self.first, inputs, use_reentrant=False))


# The net, a batch's inputs and rows for each step, operations reused and steps that strayed.
STEPS: dict[str, tuple[Callable[[], nn.Module], list[tuple[tuple[int, ...], int]], int, int]] = {
    "rows that see one another": (
        lambda: nn.Sequential(nn.Linear(5, 8), nets.Coupled(), nn.Linear(8, 3)),
        [(nets.VECTORS, 12)] * 3,
        *(2, 0),  # the first layer's, in two steps
    ),
    "layers that alternate": (Alternating, [(nets.VECTORS, 12)] * 3, 0, 0),
    "another course in training": (lambda: Between(stray), [(nets.VECTORS, 12)] * 2, 1, 2),
    "views written to": (lambda: Between(write_by_views), [(nets.VECTORS, 12)] * 3, 4, 0),
    "a checkpoint": (Thrifty, [(nets.SEQUENCES, 12)] * 3, 2 * 5, 0),
    "a smaller last batch": (nets.mlp, [(nets.VECTORS, 12)] * 2 + [(nets.VECTORS, 6)], 6, 0),
    "lengths that change, of which only attention knows": (
        nets.attention,
        [((7, 8), 12), ((7, 8), 12), ((5, 8), 12), ((5, 8), 12)],
        *(4 + 3 + 4, 0),
    ),
}


@pytest.mark.parametrize("kind", STEPS)
def test_gradients_are_exact_where_not_all_can_be_reused(kind: str) -> None:
    make, batches, reused, strayed = STEPS[kind]
    both = nets.pair(make().double())
    for seed, (shape, rows) in enumerate(batches):
        assert both.take(nets.candidates(shape, seed, rows)) < EXACT
    assert (both.stats.reused, both.stats.strayed) == (reused, strayed)


def test_rows_that_begin_to_see_one_another_later_are_computed_from_then_on() -> None:
    both = nets.pair(nn.Sequential(nn.Linear(5, 8), nets.Coupled(0.0), nn.Linear(8, 3)).double())
    for seed in range(3):
        assert both.take(nets.candidates(nets.VECTORS, seed)) < EXACT
    before = both.stats.reused
    assert before == 4
    for net in both.nets:
        net[1].share = 0.5
    assert both.take(nets.candidates(nets.VECTORS, 3)) < EXACT
    assert both.stats.reused == before + 1


def test_inputs_in_which_all_rows_are_alike_prove_nothing_for_later_steps() -> None:
    both = nets.pair(nets.encoder(batch_first=False).double())
    inputs, targets = nets.candidates(nets.SEQUENCES, 0)
    for scale in (0.0, 0.0, 1.0, 1.0):
        assert both.take((inputs * scale, targets)) < EXACT


def test_rows_drawn_twice_are_answered_twice() -> None:
    strategy = sb.Strategy(
        "kath", sb.scorers.Forward(training=True), sb.selectors.Proportional(presample=2)
    )
    both = nets.pair(nets.encoder(batch_first=False).double(), strategy)
    for seed in range(3):
        assert both.take(nets.candidates(nets.SEQUENCES, seed)) < EXACT
    assert both.stats.reused_share == pytest.approx(2 / 3)


def test_an_operation_that_is_no_row_by_row_one_fails_its_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over_rows = torch.ops.aten._softmax.default
    rows = Operation((0,), lambda args: args[0].numel())
    known: dict[Any, Operation] = dict(_reuse.OPERATIONS)
    monkeypatch.setattr(_reuse, "OPERATIONS", known | {over_rows: rows})
    both = nets.pair(nn.Sequential(nn.Linear(5, 8), nn.Softmax(0), nn.Linear(8, 3)).double())
    for seed in range(3):
        assert both.take(nets.candidates(nets.VECTORS, seed)) < EXACT
    assert both.stats.reused == 2, "the first layer's"


def test_operations_that_would_gain_nothing_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selective_backprop.experimental._reuse.operations.WORTHWHILE", 64)
    net = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 63), nn.Linear(63, 3))
    both = nets.pair(net.double())
    for seed in range(2):
        assert both.take(nets.candidates(nets.VECTORS, seed)) < EXACT
    assert (both.stats.operations, both.stats.reused) == (6, 1)
    assert both.stats.products == 2 * 4 * (5 * 64 + 64 * 63 + 63 * 3)
    assert both.stats.spared == 4 * 5 * 64


def test_weights_that_a_forward_writes_to_are_never_taken_for_what_they_were() -> None:
    class Drifting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            outputs = self.last(self.first(inputs))
            if drifts:
                self.first.weight.data.mul_(0.9)  # which counts no change
            return outputs

    drifts: list[bool] = []
    both = nets.pair(Drifting().double())
    for seed in range(4):
        assert both.take(nets.candidates(nets.VECTORS, seed)) < EXACT
        if seed == 1:  # after the trials
            drifts.append(True)
    assert both.stats.reused == 2


@pytest.mark.parametrize("layout", ["plain", "channels last", "transposed", "sliced", "expanded"])
def test_fingerprints_tell_rows_apart_in_every_layout(layout: str) -> None:
    tensor = torch.randn(6, 4, 5, 3, dtype=torch.float64)
    if layout == "channels last":
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    elif layout == "transposed":
        tensor = torch.randn(5, 6, 4, 3, dtype=torch.float64).permute(1, 2, 0, 3)
    elif layout == "sliced":
        tensor = torch.randn(6, 4, 5, 9, dtype=torch.float64)[..., 3:6]
    elif layout == "expanded":
        tensor = torch.randn(6, 1, 5, 3, dtype=torch.float64).expand(6, 4, 5, 3)
    prints, reading = Fingerprints(), plan_reading(tensor)
    assert reading is not None
    known, width = prints.of(tensor, reading), tensor[0].numel()
    assert same_rows(known[[4, 1]], prints.of(tensor[[4, 1]], reading), width)
    for place in itertools.product(range(4), range(5), range(3)):
        other = tensor.clone()
        other[(2, *place)] += 1e-9
        assert not same_rows(known, prints.of(other, reading), width)


def test_fingerprints_of_long_rows_see_elements_that_change_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("selective_backprop.experimental._reuse.fingerprints.LONGEST", 32)
    tensor = torch.randn(4, 8, 8, 4, dtype=torch.float64)
    prints, reading = Fingerprints(), plan_reading(tensor)
    assert reading is not None
    assert reading.span == 32
    known = prints.of(tensor, reading)
    for axis in (1, 2, 3):
        assert not same_rows(known, prints.of(tensor.flip(axis), reading), 256)
    assert same_rows(known, prints.of(tensor.clone(), reading), 256)


def test_what_is_not_a_number_is_never_the_same_row() -> None:
    prints, tensor = Fingerprints(), torch.full((3, 20), torch.nan)
    reading = plan_reading(tensor)
    assert reading is not None
    assert not same_rows(prints.of(tensor, reading), prints.of(tensor, reading), 20)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_fingerprints_are_precise_where_products_need_not_be(precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for device in ("cpu", "cuda"):
            with full_precision(torch.device(device)):
                products = torch.backends.cuda if device == "cuda" else torch.backends.mkldnn
                assert getattr(products.matmul, "fp32_precision", "ieee") == "ieee"
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
