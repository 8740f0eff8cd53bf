"""Where nothing is selected, training is bit for bit that of the bare loader."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from fixture_loaders import (
    Net,
    Numbered,
    NumberedStream,
    fixture_data,
    fresh_net,
    numbers,
    same_tensors,
    select,
    selective,
    streams,
    train,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, Dataset
from unhooked import unhooked

import selective_backprop as sb

EVERYTHING = {
    "traditional": sb.traditional(),
    "everything, scored": sb.Strategy("scored", sb.scorers.Forward(), sb.selectors.Everything()),
    "warm-up": sb.selective_backprop(1 / 3, warmup_epochs=2),
    "warm-up, drawn before loading": sb.random_backprop(
        1 / 3, schedule=sb.Schedule(warmup_epochs=2)
    ),
    "warm-up, coins": sb.selective_backprop(1 / 3, warmup_epochs=2, draw="bernoulli"),
    "the end of training": sb.selective_backprop(1 / 3, warmup_epochs=0, start=0.9),
}


class Noisy(Dataset):
    """Examples whose augmentation consumes global streams."""

    def __init__(self) -> None:
        self.data = fixture_data(40)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, target = self.data[index]
        return inputs + torch.rand(2) + np.random.rand(), target


def trained(strategy: sb.Strategy | None, *, shared: bool, **options: Any) -> tuple[Any, ...]:
    """Train for two epochs, with the bare loader or a selective one; what came of it."""
    torch.manual_seed(3)
    np.random.seed(3)
    model, loss_fn = fresh_net(), nn.CrossEntropyLoss()
    if shared:
        options["generator"] = torch.Generator().manual_seed(11)
    loader = DataLoader(Noisy(), batch_size=12, shuffle=True, **options)
    batches = loader
    if strategy is not None:
        batches = sb.SelectiveLoader(loader, model, loss_fn, strategy, epochs=20)
    sizes: list[int] = []

    def noted() -> Any:
        for inputs, targets in batches:
            sizes.append(len(targets))
            yield inputs, targets

    for _ in range(2):
        train(noted(), model, 1, loss_fn)
    generator = options.get("generator", torch.default_generator)
    return model.state_dict(), sizes, streams()[:2], generator.get_state().tolist()


@pytest.mark.parametrize("shared", [False, True], ids=["global stream", "loader's generator"])
@pytest.mark.parametrize("strategy", EVERYTHING.values(), ids=EVERYTHING.keys())
def test_training_on_everything_is_bit_for_bit_the_bare_loop(strategy, shared):
    bare, sizes, *moved = trained(None, shared=shared)
    state, own_sizes, *own_moved = trained(strategy, shared=shared)
    assert sizes == [12, 12, 12, 4] * 2
    assert own_sizes == sizes
    assert same_tensors(state, bare)
    assert own_moved == moved


@pytest.mark.parametrize("name", ["traditional", "warm-up", "warm-up, drawn before loading"])
def test_with_workers_it_is_bit_for_bit_the_bare_loop_too(name):
    options = {"shared": False, "num_workers": 2, "persistent_workers": name == "traditional"}
    bare, sizes, *moved = trained(None, **options)
    state, own_sizes, *own_moved = trained(EVERYTHING[name], **options)
    assert (own_sizes, own_moved) == (sizes, moved)
    assert same_tensors(state, bare)


@pytest.mark.parametrize("rate", [1 / 2, 1.0])
def test_selecting_moves_no_global_stream_beyond_what_the_loader_does(rate):
    def moved(strategy: sb.Strategy | None) -> list[Any]:
        torch.manual_seed(3)
        model = fresh_net()
        loader = DataLoader(fixture_data(40), batch_size=10, shuffle=True)
        if strategy is not None:
            loader = sb.SelectiveLoader(loader, model, nn.CrossEntropyLoss(), strategy)
        for _ in range(2):
            for _ in loader:
                pass
        return streams()[:2]

    expected = moved(None)
    assert moved(selective(rate)) == expected
    assert moved(selective(rate, draw="bernoulli")) == expected
    assert moved(sb.random_backprop(rate)) == expected


class Draws(Net):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * random.random()


@pytest.mark.parametrize(
    "strategy", [selective(), selective(draw="bernoulli"), sb.random_backprop(0.5)]
)
def test_a_model_that_draws_leaves_pythons_own_stream_as_it_was(strategy):
    loader = DataLoader(fixture_data(40), batch_size=10, shuffle=True)
    before = random.getstate()
    with unhooked():  # the annotation checks draw from it
        list(sb.SelectiveLoader(loader, Draws(), nn.CrossEntropyLoss(), strategy))
    assert random.getstate() == before


def test_what_came_as_one_object_is_passed_on_as_that_object():
    batches = [(torch.zeros(2, 2), torch.zeros(2)), (torch.ones(1, 2), torch.ones(1))]
    loader = DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch)
    assert all(
        one is other for one, other in zip(select(loader, sb.traditional()), batches, strict=True)
    )


def collate_packed(examples: list[tuple[Tensor, int]]) -> tuple[PackedSequence, object]:
    return pack_sequence([inputs for inputs, _ in examples]), object()


def test_batches_whose_rows_nobody_can_take_pass_where_none_are_taken():
    loader = DataLoader(Numbered(6), batch_size=2, collate_fn=collate_packed)
    selecting = sb.SelectiveLoader(loader, nn.Linear(1, 1), None, sb.traditional())
    assert [type(batch[0]) for batch in selecting] == [PackedSequence] * 3
    assert selecting.stats.kept == 6


def test_packed_sequences_move_to_the_device_that_is_asked_for():
    loader = DataLoader(Numbered(6), batch_size=2, collate_fn=collate_packed)
    selecting = sb.SelectiveLoader(loader, None, None, sb.traditional(), device="meta")
    packed, _ = next(iter(selecting))
    assert packed.data.device.type == "meta"


def test_rows_that_nobody_can_count_are_refused_where_they_must_be_regrouped():
    loader = DataLoader(NumberedStream(6), batch_size=2, collate_fn=collate_packed)
    selecting = sb.SelectiveLoader(loader, nn.Identity(), None, sb.traditional(), batch_size=3)
    with pytest.raises(sb.BatchError, match="PackedSequence"):
        next(iter(selecting))


def test_a_stream_passes_through_with_and_without_batches():
    for batch_size in (4, None):
        loader = DataLoader(NumberedStream(10), batch_size=batch_size)
        selecting = select(loader, sb.traditional())
        assert [batch[1].tolist() if batch_size else batch[1] for batch in selecting] == (
            [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] if batch_size else list(range(10))
        )


class BatchesOfFive(Dataset):
    """Two examples which are batches themselves."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        targets = torch.arange(5) + 5 * index
        return torch.stack([targets.float(), -targets.float()], dim=1), targets


@pytest.mark.parametrize("strategy", [sb.traditional(), EVERYTHING["everything, scored"]])
def test_everything_regroups_to_the_batch_size_asked_for(strategy):
    for loader in (
        DataLoader(Numbered(10), batch_size=4),
        DataLoader(NumberedStream(10), batch_size=4),
        DataLoader(BatchesOfFive(), batch_size=None),
        DataLoader(BatchesOfFive(), batch_size=None, sampler=range(2)),
    ):
        selecting = select(loader, strategy, batch_size=3, leftovers="flush")
        assert numbers(selecting) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
