"""An exact draw reads nothing back from its device."""

from typing import Any

import pytest
import torch

import selective_backprop as sb
from selective_backprop._batches.structure import Layout
from selective_backprop._pipeline import selection_buffer
from selective_backprop._pipeline.rows import Leftovers, Rows, Shape
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.schedule import Phase


def exact_draws(selector: sb.selectors.AbstractSelector) -> SelectionBuffer:
    """Draws of 4 from windows of 12."""
    history, running = sb.selectors.History(32), selector.start(Context(4, 12))
    return SelectionBuffer(running, Shape(4, 12), history=history, layout=Layout(), seed=(0,))


def rows(first: int, count: int, device: str = "cpu") -> Rows:
    numbers = torch.arange(first, first + count, device=device)
    batch = {"x": numbers.float()[:, None].expand(-1, 3), "y": numbers}
    return Rows(batch, count, numbers, scores=numbers.double())


class ElsewhereGenerators:
    """Torch as the buffer sees it, whose generators do for a device that has none."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def Generator(device: torch.device) -> torch.Generator:
        return torch.Generator()


@pytest.fixture
def elsewhere(monkeypatch):
    """A device of which the host can read no value, so that what runs here never waits on CUDA."""
    monkeypatch.setattr(selection_buffer, "torch", ElsewhereGenerators())
    return "meta"


EXACT = [
    sb.selectors.Percentile(2.0),
    sb.selectors.Percentile(0.5),
    sb.selectors.Uniform(1 / 3),
    sb.selectors.Top(1 / 3),
    sb.selectors.Bottom(1 / 3),
    sb.selectors.Proportional(3.0),
    sb.selectors.Proportional(3.0, bias=0.0),
]


@pytest.mark.parametrize("count", [4, 10, 40])
@pytest.mark.parametrize("selector", EXACT)
def test_an_exact_draw_reads_nothing_back_from_the_device(elsewhere, selector, count):
    stage = exact_draws(selector)
    out = 0
    for first in range(0, 120, count):
        for piece in stage.route(Phase.SELECT, rows(first, count, elsewhere)):
            assert piece.count == 4
            assert piece.batch["x"].shape == (4, 3)
            assert piece.indices.shape == (4,)
            assert piece.batch["x"].device.type == elsewhere
            out += 1
    out += len(list(stage.close(Leftovers.FLUSH)))
    assert out == 10
