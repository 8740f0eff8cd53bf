"""What scoring must leave as it found it: modes, buffers, random streams, autocast's memory."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from selective_backprop.scorers._untouched import (
    KeptBuffers,
    eval_mode,
    kept_random_streams,
    uncached_autocast,
)


class Mover(nn.Module):
    """A module whose buffers move whenever `move` says how."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.register_buffer("still", torch.full((3,), 7.0))
        self.inner = nn.BatchNorm1d(2)
        self.register_buffer("unset", None)


def add_in_place(model: Mover) -> None:
    model.count += 1


def bind_anew(model: Mover) -> None:
    model.count = model.count + 1


def bind_another_shape(model: Mover) -> None:
    model.count = torch.ones(5)


def write_behind_its_back(model: Mover) -> None:
    model.count.data.add_(1)


def move_within(model: Mover) -> None:
    model.inner.running_mean += 1
    model.inner.num_batches_tracked += 1


MOVES = [add_in_place, bind_anew, bind_another_shape, write_behind_its_back, move_within]


@pytest.mark.parametrize("move", MOVES)
def test_buffers_that_moved_are_put_back_pass_after_pass(move):
    model = Mover()
    kept = KeptBuffers(model)
    before = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
    for _ in range(3):
        with kept.kept():
            move(model)
        after = dict(model.named_buffers())
        assert after.keys() == before.keys()
        for name, (buffer, value) in before.items():
            assert after[name] is buffer, name
            assert torch.equal(buffer, value), name


def test_what_training_moves_between_passes_stays_moved():
    model = Mover()
    kept = KeptBuffers(model)
    for _ in range(3):
        with kept.kept():
            add_in_place(model)
        model.count += 10
    assert model.count.tolist() == [30.0, 30.0]


def test_a_buffer_that_begins_to_move_late_is_kept_from_then_on():
    model = Mover()
    kept = KeptBuffers(model)
    seen = []
    for number in range(4):
        with kept.kept():
            if number > 0:
                add_in_place(model)
        seen.append(model.count[0].item())
    assert seen == [0.0, 1.0, 1.0, 1.0]


def test_only_what_moves_is_copied_after_the_first_pass(monkeypatch):
    model = Mover()
    kept = KeptBuffers(model)
    with kept.kept():
        add_in_place(model)
    copied = []
    clone = torch.Tensor.clone
    monkeypatch.setattr(torch.Tensor, "clone", lambda self: copied.append(self) or clone(self))
    with kept.kept():
        add_in_place(model)
    assert [tensor is model.count for tensor in copied] == [True]


def test_an_error_puts_the_buffers_back_and_the_next_pass_looks_at_all_of_them_again():
    model = Mover()
    kept = KeptBuffers(model)
    with pytest.raises(KeyError), kept.kept():  # noqa: PT012
        add_in_place(model)
        raise KeyError
    assert model.count.tolist() == [0.0, 0.0]
    with kept.kept():  # the part of the model that the error kept from running
        move_within(model)
    assert model.inner.running_mean.tolist() == [0.0, 0.0]


def test_a_buffer_that_appears_may_stay():
    model = Mover()
    with KeptBuffers(model).kept():
        model.unset = torch.ones(1)
        model.register_buffer("table", torch.arange(3))
    assert model.table.tolist() == [0, 1, 2]


def test_buffers_of_other_layouts_and_origins_do_no_harm():
    model = Mover()
    model.register_buffer("graph", torch.eye(3).to_sparse())
    with torch.inference_mode():
        model.register_buffer("cache", torch.ones(2))
    with KeptBuffers(model).kept():
        add_in_place(model)
    assert model.count.tolist() == [0.0, 0.0]


class Picky(nn.Module):
    """A module whose own `train()` does more than to set a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.layers = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2))

    def train(self, mode: bool = True) -> nn.Module:
        self.calls += 1
        return super().train(mode)


def test_every_module_gets_its_own_mode_back():
    model = Picky()
    model.layers[1].training = False  # frozen
    before = [module.training for module in model.modules()]
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before
    assert model.calls == 0


def test_an_error_gives_the_modes_back():
    model = Picky()
    with pytest.raises(KeyError), eval_mode(model):
        raise KeyError
    assert all(module.training for module in model.modules())


def draw_from_every_stream() -> list[float]:
    return [torch.rand(()).item(), float(np.random.rand()), random.random()]


@pytest.mark.parametrize("fails", [True, False])
def test_every_global_random_stream_goes_on_where_it_was(fails):
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    expected = [draw_from_every_stream() for _ in range(2)]
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    assert draw_from_every_stream() == expected[0]
    try:
        with kept_random_streams(None):
            for _ in range(1000):
                draw_from_every_stream()
            torch.manual_seed(7)
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert draw_from_every_stream() == expected[1]


def test_outside_autocast_there_is_nothing_to_keep_from_remembering():
    with uncached_autocast(None):
        assert not torch.is_autocast_enabled("cpu")


def test_inside_autocast_the_type_stays_and_the_memory_is_off():
    with torch.autocast("cpu", dtype=torch.float16):
        with uncached_autocast(torch.device("cpu")):
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_autocast_dtype("cpu") == torch.float16
            assert not torch.is_autocast_cache_enabled()
        assert torch.is_autocast_cache_enabled()
