"""What goes wrong in a pass says where, and costs nothing of a state that was saved before it."""

import traceback
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, losses_by_number, numbers, select, selective
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb

BROKEN = 13


class Breaking(Numbered):
    """Cannot read one of its examples."""

    def __getitem__(self, index: int) -> Any:
        if index == BROKEN:
            raise OSError("cannot be read")
        return super().__getitem__(index)


class NumberedWithNaN(Numbered):
    def __getitem__(self, index: int) -> Any:
        inputs, number = super().__getitem__(index)
        return inputs * (float("nan") if index == BROKEN else 1.0), number


def finite_losses(model: nn.Module, batch: Any) -> torch.Tensor:
    return losses_by_number(model, batch) + 0.0 * batch[0].sum(1)


def make_loader(data: Numbered, *, workers: int = 0, **options: Any) -> sb.SelectiveLoader:
    loader = DataLoader(data, 4, num_workers=workers)
    return select(loader, selective(1 / 2), **({"losses": finite_losses} | options))


def take_until_it_breaks(broken: sb.SelectiveLoader) -> tuple[list[list[int]], Any, Exception]:
    """Return the batches of an epoch up to an error, the state after the last, and the error."""
    batches, states = [], [broken.state_dict()]

    def take() -> None:
        for batch in broken:
            batches.append(batch[1].tolist())
            states.append(broken.state_dict())

    with pytest.raises((OSError, sb.LossError)) as raised:
        take()
    traceback.clear_frames(raised.value.__traceback__)  # which hold on to the workers
    assert batches
    return batches, states[-1], raised.value


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_that_raises_names_the_examples_and_costs_no_state(workers):
    expected = numbers(make_loader(Numbered(32)))
    batches, state, error = take_until_it_breaks(make_loader(Breaking(32), workers=workers))
    assert "cannot be read" in str(error)
    assert any("[12, 13, 14, 15]" in note for note in error.__notes__)
    mended = make_loader(Numbered(32), workers=workers)
    mended.load_state_dict(state)
    assert batches + numbers(mended) == expected


def test_a_loss_that_is_not_a_number_names_the_example_and_costs_no_state():
    batches, state, error = take_until_it_breaks(make_loader(NumberedWithNaN(32)))
    assert "1 of 4 losses" in str(error)
    assert "[13]" in str(error)
    mended = make_loader(Numbered(32))
    mended.load_state_dict(state)
    assert batches + numbers(mended) == numbers(make_loader(Numbered(32)))
    # or without that example, which needs no other state
    skipping = make_loader(NumberedWithNaN(32), nonfinite="skip")
    skipping.load_state_dict(state)
    assert numbers(skipping)
    assert skipping.stats.nonfinite == 1


def test_an_error_of_a_stream_is_left_as_it_is():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield torch.zeros(2), 0
            raise OSError("gone")

    broken = select(DataLoader(Stream(), 1), selective(1 / 2))
    with pytest.raises(OSError, match="gone") as raised:
        list(broken)
    assert not hasattr(raised.value, "__notes__")
