"""Steps that reuse activations train as plain steps do, and compute less; or refuse to."""

import copy
from collections.abc import Callable
from contextlib import nullcontext

import fixture_steps as nets
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from unhooked import unhooked

import selective_backprop as sb

TOP = sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(rate=1 / 4))
LOSS = nn.CrossEntropyLoss()
SEQUENCES = (7, 16)


class Counting(TorchDispatchMode):
    """Counts the heavy operations that are computed."""

    computed = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        heavy = ("mm.", "convolution.", "scaled_dot_product")
        self.computed += any(name in str(func) for name in heavy)
        return func(*args, **(kwargs or {}))


class Pair:
    """The same net, trained by a plain step and by one that reuses activations."""

    def __init__(self, net: nn.Module) -> None:
        self.nets = net, copy.deepcopy(net)
        reuse = sb.experimental.ReuseActivations()
        options = ({}, {"reuse": reuse})
        self.steps = [
            sb.SelectiveStep(net, LOSS, TOP, **each)
            for net, each in zip(self.nets, options, strict=True)
        ]

    def take(self, batch: tuple[Tensor, Tensor]) -> int:
        """Train both, check that they stay equal, and return how many operations reuse computed."""
        for net, step in zip(self.nets, self.steps, strict=True):
            net.zero_grad()
            with Counting() as counting:
                selected = step(batch)
            selected.loss.backward()
            with torch.no_grad():
                for each in net.parameters():
                    if each.grad is not None:
                        each -= 0.3 * each.grad
        for one, other in zip(*(net.parameters() for net in self.nets), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        return counting.computed


class Net(nn.Module):
    """A net of two layers, and what happens between them."""

    def __init__(self, between: Callable[["Net", Tensor], Tensor], inputs=5, width=5) -> None:
        super().__init__()
        self.first, self.between = nn.Linear(inputs, width), between
        self.last = nn.Linear(inputs, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.between(self, self.first(inputs)))


class Encoder(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.last = nn.Linear(16, 3)
        self.rows = 0 if batch_first else 1

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.layers(inputs if self.rows == 0 else inputs.transpose(0, 1))
        return self.last(hidden.mean(1 - self.rows))


def attention(net: Net, packed: Tensor) -> Tensor:
    heads = (part.unflatten(2, (2, 8)).transpose(1, 2) for part in packed.chunk(3, -1))
    return functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2).mean(1)


def products(net: Net, packed: Tensor) -> Tensor:
    query, key, value = packed.chunk(3, -1)
    return ((query @ key.transpose(1, 2)).softmax(-1) @ value).mean(1)


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (nets.mlp, nets.VECTORS),
    "convolutional": (nets.convolutional, nets.IMAGES),
    "channels last": (
        lambda: nets.convolutional().to(memory_format=torch.channels_last),
        nets.IMAGES,
    ),
    "encoder, batch first": (lambda: Encoder(batch_first=True), SEQUENCES),
    "encoder, time first": (lambda: Encoder(batch_first=False), SEQUENCES),
    "attention": (lambda: Net(attention, 16, 48), SEQUENCES),
    "products of activations": (lambda: Net(products, 16, 48), SEQUENCES),
    "shared weights": (lambda: Net(lambda net, x: net.first(x.relu())), nets.VECTORS),
    "checkpoints": (
        lambda: Net(lambda net, x: checkpoint(net.first, x, use_reentrant=False)),
        nets.VECTORS,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_the_plain_steps_and_only_the_selection_pass_computes(kind) -> None:
    torch.manual_seed(0)
    make, shape = KINDS[kind]
    both = Pair(make().double())
    whole, *counts = [both.take(nets.candidates(shape, seed)) for seed in range(7)]
    assert counts == [whole, whole / 2, whole, whole / 2, whole / 2, whole / 2]


def dependent(net: Net, hidden: Tensor) -> Tensor:
    return hidden - hidden.mean(0)


@pytest.mark.parametrize("between", [dependent, lambda net, x: x.relu_(), lambda net, x: x.mul_(2)])
def test_what_depends_on_other_candidates_or_is_changed_in_place_is_computed(between) -> None:
    torch.manual_seed(0)
    both = Pair(Net(between).double())
    assert [both.take(nets.candidates(nets.VECTORS, seed)) for seed in range(3)] == [4, 4, 3]


def test_a_result_that_is_equal_for_all_candidates_proves_nothing() -> None:
    torch.manual_seed(0)
    both = Pair(Net(dependent).double())
    for seed in range(6):
        for net in both.nets:
            net.last.weight.data *= 0  # as weights that begin at zero, in a slow warm-up
            if seed > 3:  # between two comparisons
                net.last.weight.data += torch.arange(15).view(3, 5)
        both.take(nets.candidates(nets.VECTORS, seed))


class Alternating(nn.Module):
    def __init__(self, longer: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.calls, self.longer = 0, longer

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        odd = self.calls % 2
        hidden = self.layers[0](inputs)
        if self.longer:
            return (hidden if odd else self.layers[1](hidden))[:, :3]
        return self.layers[1 + odd](hidden)[:, :3]


@pytest.mark.parametrize("longer", [False, True])
def test_other_operations_are_computed_from_the_first_difference_on_and_warned_of_once(longer):
    torch.manual_seed(0)
    both = Pair(Alternating(longer).double())
    with pytest.warns(sb.SelectionWarning, match="operation 2 of the training forward") as said:
        counts = [both.take(nets.candidates(nets.VECTORS, seed)) for seed in range(3)]
    assert len(said) == 1
    assert counts == ([3, 3, 2] if longer else [4, 4, 3])


def test_what_never_agrees_is_said() -> None:
    net = Net(lambda net, x: x).double()
    net.first.register_forward_pre_hook(lambda net, x: x[0] * (1 + net.training))
    with pytest.warns(sb.SelectionWarning, match="no operation gives the result"):
        assert Pair(net).take(nets.candidates(nets.VECTORS, 0)) == 4


def test_under_autocast_losses_are_the_plain_steps() -> None:
    torch.manual_seed(0)
    both = Pair(nets.mlp())
    for seed in range(3):
        inputs, labels = nets.candidates(nets.VECTORS, seed)
        with torch.autocast("cpu", torch.bfloat16), Counting() as counting:
            plain, reused = (step((inputs.float(), labels)) for step in both.steps)
        torch.testing.assert_close(plain.losses, reused.losses, rtol=1e-2, atol=1e-2)
    assert counting.computed == 6 + 3


REFUSED = {
    "BatchNorm1d": lambda: nn.BatchNorm1d(5),
    "BatchNorm2d": lambda: nn.BatchNorm2d(5, track_running_stats=False).eval(),
    "Dropout": lambda: nn.Dropout(0.1),
    "RReLU": nn.RReLU,
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2, dropout=0.1),
    "LSTM": lambda: nn.LSTM(4, 4, num_layers=2, dropout=0.1),
    "Identity": lambda: setattr(each := nn.Identity(), "gradient_checkpointing", True) or each,
    "OptimizedModule": lambda: torch.compile(nn.Linear(5, 3), backend="eager"),
}


def make(net: nn.Module, strategy: sb.Strategy = TOP, reuse: object = None) -> sb.SelectiveStep:
    return sb.SelectiveStep(net, LOSS, strategy, reuse=reuse or sb.experimental.ReuseActivations())


@pytest.mark.parametrize("kind", REFUSED)
def test_layers_that_are_random_or_hidden_or_mix_rows_are_refused(kind) -> None:
    with pytest.raises(sb.ConfigurationError, match=f"with {kind} as it is set; leave out reuse="):
        make(nn.Sequential(nn.Linear(5, 5), REFUSED[kind]()))


@pytest.mark.usefixtures("lone_rank")
def test_a_wrapper_that_waits_for_other_ranks_is_refused() -> None:
    with pytest.raises(sb.ConfigurationError, match="DistributedDataParallel"):
        make(DistributedDataParallel(nn.Linear(5, 3)))


@pytest.mark.parametrize(
    "make_allowed",
    [
        lambda: nn.Dropout(0.0),
        lambda: nn.Dropout(0.1).eval(),
        lambda: nn.BatchNorm1d(5).eval(),
        lambda: nn.LSTM(4, 4, dropout=0.0, num_layers=2),
        lambda: nn.MultiheadAttention(4, 2),
    ],
)
def test_layers_that_could_be_random_but_are_not_are_allowed(make_allowed) -> None:
    make(nn.Sequential(nn.Linear(5, 5), make_allowed()))


def test_a_mode_that_changes_later_is_refused_then() -> None:
    net = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)).double().eval()
    step = make(net)
    step(nets.candidates(nets.VECTORS, 0))
    net.train()
    with pytest.raises(sb.ConfigurationError, match="with Dropout"):
        step(nets.candidates(nets.VECTORS, 1))


@pytest.mark.parametrize("steps", [0, 2])
def test_a_training_forward_that_draws_random_numbers_is_refused(steps) -> None:
    rate = 0.0

    def drop(net: Net, hidden: Tensor) -> Tensor:
        return functional.dropout(hidden, rate, net.training) if rate else hidden

    step = make(Net(drop).double())
    for seed in range(steps):
        step(nets.candidates(nets.VECTORS, seed))
    rate = 0.1
    with pytest.raises(sb.ConfigurationError, match="draws at random"):
        step(nets.candidates(nets.VECTORS, 9))


def test_other_scorers_a_second_step_and_other_objects_are_refused() -> None:
    net, shared = nn.Linear(5, 3), sb.experimental.ReuseActivations()
    half = sb.Strategy("half", sb.scorers.Forward(precision="bf16"), TOP.selector)
    for strategy in (half, sb.random_backprop(1 / 2)):
        with pytest.raises(sb.ConfigurationError, match=r"only from Forward\(\)"):
            make(net, strategy)
    make(net, TOP, shared)
    with pytest.raises(sb.ConfigurationError, match="two steps"):
        make(net, TOP, shared)
    with unhooked(), pytest.raises(sb.ConfigurationError, match="ReuseActivations"):
        make(net, TOP, True)


@pytest.mark.parametrize("fails", [False, True])
def test_the_switch_of_fused_attention_is_put_back(fails) -> None:
    def between(net: Net, hidden: Tensor) -> Tensor:
        assert not torch.backends.mha.get_fastpath_enabled() or torch.is_grad_enabled()
        if fails:
            raise ArithmeticError
        return hidden

    with pytest.raises(ArithmeticError) if fails else nullcontext():
        make(Net(between).double())(nets.candidates(nets.VECTORS, 0))
    assert torch.backends.mha.get_fastpath_enabled()
