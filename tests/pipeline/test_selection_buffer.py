"""Windows, draws and full batches, on rows that need no loader."""

from typing import Any

import pytest
import torch
from fixture_cases import share_of_cases
from fixture_doors import Numbered, selective
from fixture_parts import Stateless
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

import selective_backprop as sb
from selective_backprop._batches.structure import Layout
from selective_backprop._pipeline import selection_buffer as _funnel
from selective_backprop._pipeline.rows import Leftovers, Rows, Shape
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.schedule import Phase


def funnel(
    batch: int = 4,
    window: int | None = 8,
    *,
    selector: sb.selectors.AbstractSelector | None = None,
    history: sb.selectors.History | None = None,
    **shape: Any,
) -> SelectionBuffer:
    running = (selector or sb.selectors.Top(1 / 2)).start(Context(batch, window))
    sizes = Shape(batch, window, **shape)
    return SelectionBuffer(running, sizes, history=history, layout=Layout(), seed=(0,))


def rows(first: int, count: int, device: str = "cpu") -> Rows:
    numbers = torch.arange(first, first + count, device=device)
    batch = {"x": numbers.float()[:, None].expand(-1, 3), "y": numbers}
    return Rows(batch, count, numbers, scores=numbers.double())


def numbers(batches: Any) -> list[list[int]]:
    return [batch.indices.tolist() for batch in batches]


def test_rows_that_were_chosen_earlier_go_before_candidates_that_wait():
    stage = funnel(unchanged=False)
    assert numbers(stage.route(Phase.PLAIN, rows(0, 5))) == [[0, 1, 2, 3]]
    assert not list(stage.route(Phase.SELECT, rows(10, 5)))
    assert (stage.state.candidates, stage.state.rows) == (5, 1)
    expected = [[4, 10, 11, 12], [13, 14, 20, 21]]
    assert numbers(stage.route(Phase.PLAIN, rows(20, 2))) == expected


def test_a_history_that_is_still_empty_is_kept_all_the_same():
    # An empty history is false, and was once taken for none.
    history = sb.selectors.History(16)
    stage = funnel(selector=sb.selectors.Percentile(1.0), history=history)
    list(stage.route(Phase.SELECT, rows(0, 20)))
    assert sorted(history.recent.tolist()) == list(range(16))


def test_a_window_is_filed_before_it_is_drawn_from():
    seen: list[int] = []

    class Looking(Stateless, sb.selectors.RunningSelector):
        def select(
            self, scores: Tensor, history: sb.selectors.History, generator: Any
        ) -> sb.selectors.Choice:
            seen.append(len(history))
            assert set(scores.tolist()) <= set(history.recent.tolist())
            return sb.selectors.Choice(torch.arange(4))

    layout = Layout()
    stage = SelectionBuffer(
        Looking(), Shape(4, 8), history=sb.selectors.History(64), layout=layout, seed=(0,)
    )
    for first in range(0, 24, 6):
        list(stage.route(Phase.SELECT, rows(first, 6)))
    assert seen == [8, 16, 24]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 7))
@share_of_cases(0.8)
def test_cutting_and_joining_keeps_every_row_in_order(counts, batch):
    stage = funnel(batch, keeps_everything=True, unchanged=False)
    out, first = [], 0
    for count in counts:
        out += list(stage.route(Phase.SELECT, rows(first, count)))
        first += count
        assert stage.state.rows < batch
    out += list(stage.close(Leftovers.FLUSH))
    assert [len(indices) for indices in numbers(out)][:-1] == [batch] * (len(out) - 1)
    for piece in out:
        assert piece.batch["y"].tolist() == piece.indices.tolist()
        assert piece.batch["x"][:, 2].tolist() == piece.indices.tolist()
    assert [number for piece in numbers(out) for number in piece] == list(range(first))


@pytest.mark.parametrize("selector", [sb.selectors.Percentile(1.0), sb.selectors.Uniform(1 / 2)])
def test_every_window_of_every_epoch_is_drawn_by_a_seed_of_its_own(selector):
    def drawn(seed: int, epoch: int) -> list[list[int]]:
        stage = funnel(selector=selector, history=sb.selectors.History(8))
        stage.seed = (seed,)
        stage.open(epoch)
        return [
            [number % 8 for number in out]
            for first in range(0, 64, 8)
            for out in numbers(stage.route(Phase.SELECT, rows(first, 8)))
        ]

    assert drawn(0, 0) == drawn(0, 0)
    assert drawn(0, 0) != drawn(0, 1)
    assert drawn(0, 1) != drawn(1, 0)
    assert len(set(map(tuple, drawn(0, 0)))) > 1


class ElsewhereGenerators:
    """Torch as the funnel sees it, whose generators do for a device that has none."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def Generator(device: torch.device) -> torch.Generator:
        return torch.Generator()


@pytest.fixture
def elsewhere(monkeypatch):
    """A device of which the host can read no value, ever: to ask for one is an error.

    What runs here runs on CUDA without making the host wait.
    """
    monkeypatch.setattr(_funnel, "torch", ElsewhereGenerators())
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


@pytest.mark.parametrize("count", [4, 10, 12, 40])
@pytest.mark.parametrize("selector", EXACT)
def test_an_exact_draw_reads_nothing_back_from_the_device(elsewhere, selector, count):
    stage = funnel(4, 12, selector=selector, history=sb.selectors.History(32))
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


def test_coins_are_read_back(elsewhere):
    stage = funnel(
        4,
        None,
        selector=sb.selectors.Percentile(1.0, "bernoulli"),
        history=sb.selectors.History(32),
    )
    with pytest.raises(NotImplementedError, match="nonzero"):
        list(stage.route(Phase.SELECT, rows(0, 8, elsewhere)))


def test_a_whole_loader_with_exact_draws_reads_nothing_back_until_its_epoch_ends(elsewhere):
    def losses(model: nn.Module, batch: Any) -> Tensor:
        return batch[0][:, 0]

    door = sb.SelectiveLoader(
        DataLoader(Numbered(60), 5, collate_fn=default_collate),
        nn.Identity(),
        None,
        selective(1 / 3),
        losses=losses,
        device=elsewhere,
        nonfinite="select",
        with_selection=True,
    )
    batches = iter(door)
    for _ in range(4):
        (inputs, targets), selection = next(batches)
        assert {inputs.device.type, targets.device.type, selection.indices.device.type} == {"meta"}
        assert door.stats.kept == 5 * door.stats.batches
    with pytest.raises(RuntimeError, match=r"meta tensor|unique"):
        next(batches)  # the share of ties is counted once, at the end
