"""What scoring must leave as it found it: modes, buffers, random streams, autocast's memory."""

import functools
import random

import numpy as np
import pytest
import torch
from torch import nn

import selective_backprop as sb
from selective_backprop._core import isolation
from selective_backprop._core.isolation import KeptModel, kept_random_streams, list_modules


class Mover(nn.Module):
    """A module whose buffers move as the tests say."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.register_buffer("still", torch.full((3,), 7.0))
        self.inner = nn.BatchNorm1d(2)
        self.register_buffer("unset", None)


def move_within(model: Mover) -> None:
    model.inner.running_mean += 1
    model.inner.num_batches_tracked += 1


LARGE = isolation.LARGEST_SAVED // 4 + 1  # numbers of four bytes
MOVES = {
    "adds in place": lambda model: model.count.add_(1),
    "writes behind its back": lambda model: model.count.data.add_(1),
    "moves within": move_within,
    "binds anew": lambda model: setattr(model, "count", model.count + 1),
    "sets what was unset": lambda model: setattr(model, "unset", torch.ones(1)),
    "registers": lambda model: model.inner.register_buffer("table", torch.arange(3), False),
    "registers anew": lambda model: model.register_buffer("count", model.count + 1, False),
    "deletes": lambda model: delattr(model, "count"),
    "unsets": lambda model: setattr(model, "count", None),
}
REFUSED = {
    "takes other memory": lambda model: setattr(model.count, "data", torch.ones(5)),
    "grows": lambda model: model.count.resize_(LARGE + 7).fill_(3),
    "shrinks": lambda model: model.count.resize_(1).fill_(3),
    "reshapes": lambda model: model.count.unsqueeze_(0).add_(1),
    "shares other memory": lambda model: model.count.set_(torch.ones(5)),
}


@pytest.mark.parametrize("move", MOVES)
def test_buffers_that_a_pass_changed_or_bound_anew_are_put_back_from_the_first_pass_or_later_on(
    move,
):
    for since in (0, 1):
        model = Mover()
        kept = KeptModel(model)
        before = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
        saved = {*model.state_dict()}
        for number in range(4):
            with kept.kept():
                if number >= since:
                    MOVES[move](model)
            assert [name for name, _ in model.named_buffers()] == [*before]
            for name, (buffer, value) in before.items():
                assert model.get_buffer(name) is buffer, name
                assert torch.equal(buffer, value), name
            assert {*model.state_dict()} == saved


@pytest.mark.parametrize("move", REFUSED)
@pytest.mark.parametrize("size", [2, LARGE])
def test_a_pass_that_gives_buffers_other_memory_is_refused(move, size):
    model = Mover()
    model.count = torch.zeros(size)
    kept = KeptModel(model)
    with kept.kept():
        pass
    with (
        pytest.raises(sb.ConfigurationError, match=r"buffers.*only if self\.training"),
        kept.kept(),
    ):
        REFUSED[move](model)
    with kept.kept():  # from now on these are the model's
        pass


def test_a_lazy_modules_buffers_are_made_by_a_pass_and_kept_from_then_on():
    model = nn.LazyBatchNorm1d()
    kept = KeptModel(model)
    for evaluates in (True, False):
        with kept.kept(evaluates=evaluates):
            model(torch.randn(4, 3))
    assert model.running_mean.tolist() == [0.0] * 3
    assert model.num_batches_tracked == 0


@pytest.mark.parametrize(
    "values",
    [torch.zeros(LARGE), torch.arange(8)[::2], torch.eye(3).to_sparse()],
    ids=["large", "with gaps", "sparse"],
)
def test_a_buffer_that_is_not_saved_may_not_change(values):
    model = nn.Sequential(Mover())
    model[0].count = values
    kept = KeptModel(model)
    with kept.kept():
        pass
    for again in (kept, KeptModel(model)):
        with pytest.raises(sb.ConfigurationError, match=r"'0\.count'.*1 MiB"), again.kept():
            model[0].count.mul_(2)


def test_what_moves_between_passes_stays_moved():
    model = Mover()
    kept = KeptModel(model)
    for _ in range(2):
        with kept.kept():
            model.count.add_(1)
        model.count += 10
    model.count.data = torch.full((2,), 5.0)  # the same tensor still
    with kept.kept():
        model.count.data.add_(1)
    assert model.count.tolist() == [5.0, 5.0]


def test_buffers_that_a_waiting_graph_holds_may_be_put_back():
    model = nn.Linear(2, 1)
    model.register_buffer("scale", torch.tensor([2.0, 3.0], requires_grad=False))
    loss = (model(torch.ones(1, 2)) * model.scale).sum()  # its gradient needs the scale
    with KeptModel(model).kept():
        model.scale.data.mul_(5)
    loss.backward()
    assert model.bias.grad.tolist() == [5.0]


def test_buffers_of_any_type_and_shape_are_put_back():
    model = nn.Module()
    values = {
        "flag": torch.tensor(True),
        "narrow": torch.rand(3).bfloat16(),
        "wide": torch.rand(2, dtype=torch.complex128),
        "none": torch.empty(0),
        "byte": torch.arange(5, dtype=torch.uint8),
        "tiny": torch.rand(3).to(torch.float8_e4m3fn),
        "single": torch.arange(8)[::8],
        "not_a_number": torch.tensor([torch.nan, 1.0]),
    }
    for name, value in values.items():
        model.register_buffer(name, value)
    before = {name: value.clone() for name, value in values.items()}
    kept = KeptModel(model)
    for _ in range(2):
        with kept.kept():
            for value in values.values():
                value.copy_(torch.zeros_like(value))
        for name, value in values.items():
            assert str(value.tolist()) == str(before[name].tolist()), name


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_module_whose_buffers_cannot_be_put_back_is_refused():
    script = torch.jit.trace(nn.BatchNorm1d(2).eval(), torch.ones(1, 2))
    with pytest.raises(sb.ConfigurationError, match=r"torch\.jit.*Pass the module"):
        KeptModel(nn.Sequential(script))


def test_an_error_puts_the_buffers_back_and_the_next_pass_looks_at_all_of_them_again():
    model = Mover()
    kept = KeptModel(model)
    with pytest.raises(KeyError), kept.kept():  # noqa: PT012
        model.count.add_(1)
        raise KeyError
    assert model.count.tolist() == [0.0, 0.0]
    with kept.kept():  # the part of the model that the error kept from running
        move_within(model)
    assert model.inner.running_mean.tolist() == [0.0, 0.0]


def test_buffers_of_other_layouts_and_origins_do_no_harm():
    model = Mover()
    model.register_buffer("graph", torch.eye(3).to_sparse())
    with torch.inference_mode():
        model.register_buffer("cache", torch.ones(2))
    kept = KeptModel(model)
    for _ in range(2):
        with kept.kept(), torch.inference_mode():
            model.count.add_(1)
            model.cache += 1
        assert model.count.tolist() == [0.0, 0.0]
        assert model.graph.to_dense().tolist() == torch.eye(3).tolist()
        assert model.cache.tolist() == [1.0, 1.0]


class Picky(nn.BatchNorm1d):
    """A module whose own `train()` does more than to set a flag."""

    def train(self, mode: bool = True) -> nn.Module:
        raise AssertionError


def test_every_module_gets_its_own_mode_back():
    model = nn.ModuleList([Picky(2), nn.Dropout()])
    model[1].training = False  # frozen
    with KeptModel(model).kept(evaluates=True):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False]


def test_modules_are_listed_once_each_and_none_is_left_out():
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Sequential(nn.ReLU(), shared, nn.ModuleList([nn.Tanh()])))
    model.register_module("nothing", None)
    model[1].append(model[0])
    assert {*map(id, list_modules(model))} == {*map(id, model.modules())}
    assert len(list_modules(model)) == len([*model.modules()])


DRAWS = [
    int,  # draws nothing
    functools.partial(random.gauss, 0, 1),
    np.random.randn,
    functools.partial(np.random.seed, 7),
    functools.partial(torch.rand, 3),
]


def streams() -> list[object]:
    """The states of all random streams."""
    return [random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()]


@pytest.mark.parametrize("inside", DRAWS)
def test_random_streams_are_put_back_whatever_was_drawn_between_passes(inside):
    for between in 2 * DRAWS:  # of two normal numbers, the second is left over
        before = streams()
        with kept_random_streams(None):
            inside()
            with kept_random_streams(None):  # a pass may be inside another
                between()
                inside()
            inside()
        assert streams() == before
        between()


def test_so_is_a_stream_that_another_generator_of_numpy_draws():
    own = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        before = np.random.get_state(legacy=False)
        with kept_random_streams(None):
            np.random.randn(3)
        assert np.random.get_state(legacy=False) == before
    finally:
        np.random.set_bit_generator(own)
