"""Losses that are not finite: refused by name, left out, or put first."""

from typing import Any, ClassVar

import fixture_loaders
import pytest
import torch
from fixture_loaders import Numbered, flat, losses_by_number, numbers, select, selective
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop._pipeline.nonfinite import LateChecks

BAD = {3: float("nan"), 9: float("inf"), 13: -float("inf")}


def broken_losses(model: nn.Module, batch: Any) -> Tensor:
    losses = losses_by_number(model, batch)
    for row, number in enumerate(batch[1].tolist()):
        losses[row] = BAD.get(number, losses[row])
    return losses


def broken(data: Any, strategy: sb.Strategy, **options: Any) -> sb.SelectiveLoader:
    return select(DataLoader(data, 5), strategy, losses=broken_losses, **options)


STRATEGIES = pytest.mark.parametrize(
    "strategy", [selective(), selective(draw="bernoulli"), sb.random_scored(1 / 2)]
)


@STRATEGIES
def test_the_examples_are_named_by_default(strategy):
    loader = broken(Numbered(20), strategy)
    with pytest.raises(sb.LossError) as caught:
        list(loader)
    for part in ("1 of 5 losses", "examples [3]", "rows [3]", 'nonfinite="skip"'):
        assert part in str(caught.value)
    with pytest.raises(sb.LossError, match=r"rows \[3\].*nan"):  # where there are no indices
        list(broken(fixture_loaders.NumberedStream(20), strategy))


@STRATEGIES
def test_skipped_examples_are_never_trained_on_and_are_counted(strategy):
    options = {"nonfinite": "skip", "leftovers": "flush", "with_selection": True}
    loader = broken(Numbered(20), strategy, **options)
    trained: list[int] = []
    for _ in range(3):
        for (inputs, targets), selection in loader:
            assert selection.indices.tolist() == targets.tolist() == inputs[:, 0].tolist()
            trained += targets.tolist()
    assert trained
    assert not set(trained) & set(BAD)
    assert loader.stats.nonfinite == 9
    assert loader.stats.candidates == loader.stats.scored == 60
    history = loader.state_dict()["parts"].get("history")
    assert history is None or bool(torch.isfinite(history["ring"][: history["filed"]]).all())


def test_the_length_is_not_known_where_examples_may_be_skipped():
    for strategy in (selective(), sb.random_scored(1 / 2)):
        with pytest.raises(TypeError, match="skip"):
            len(broken(Numbered(20), strategy, nonfinite="skip"))
    assert len(broken(Numbered(20), selective(), nonfinite="select")) == 2


def test_selected_examples_rank_above_all_others():
    strategy = sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(1 / 2))
    loader = broken(Numbered(20), strategy, nonfinite="select", batch_size=2)
    assert set(BAD) <= set(flat(numbers(loader)))
    assert loader.stats.nonfinite == 0


def test_a_batch_of_which_nothing_is_left_is_no_batch():
    def first_batch_bad(model: nn.Module, batch: Any) -> Tensor:
        return torch.where(batch[1] < 5, torch.nan, losses_by_number(model, batch))

    options = {"losses": first_batch_bad, "nonfinite": "skip"}
    loader = select(DataLoader(Numbered(20), 5), selective(), **options)
    assert min(flat(numbers(loader))) >= 5
    assert loader.stats.nonfinite == 5


@pytest.mark.cuda
@pytest.mark.parametrize("leftovers", ["carry", "flush", "drop"])
def test_what_is_skipped_on_a_device_just_before_a_draw_is_what_is_skipped_on_the_cpu(leftovers):
    found = []
    for device in ("cpu", "cuda"):
        data, strategy = DataLoader(Numbered(33), 5), sb.top_k(1 / 3)
        options = {"device": device, "nonfinite": "skip", "leftovers": leftovers}
        loader = select(data, strategy, losses=broken_losses, **options)
        yielded = [[numbers.tolist() for _, numbers in loader] for _ in range(3)]
        found.append((yielded, loader.stats))
    on_cpu, on_device = found
    assert on_device == on_cpu
    assert on_device[1].nonfinite == 9


class Number(torch.Tensor):
    """A number on the second device."""

    device = torch.device("cuda", 1)


class Event:
    recorded: ClassVar[list[Any]] = []

    def record(self, stream: Any = "the current device's") -> None:
        self.recorded.append(stream)


def test_a_check_waits_for_the_stream_of_its_own_device(monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: device)
    monkeypatch.setattr(torch, "empty", lambda size, pin_memory, **rest: empty(size, **rest))
    LateChecks().add(torch.ones(()).as_subclass(Number), lambda: RuntimeError("not finite"))
    assert Event.recorded == [Number.device]
