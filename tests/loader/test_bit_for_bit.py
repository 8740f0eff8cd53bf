"""Where nothing is selected, training is bit for bit that of the bare loader."""

from typing import Any

import fixture_loaders
import numpy as np
import pytest
import torch
from fixture_loaders import NumberedStream, fresh_net, numbers, same_tensors, select, streams, train
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

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
        self.data = fixture_loaders.fixture_data(40)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, target = self.data[index]
        return inputs + torch.rand(2) + np.random.rand(), target


def trained(
    strategy: sb.Strategy | None, *, shared: bool = False, **options: Any
) -> tuple[Any, ...]:
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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"shared": shared}) for name in EVERYTHING for shared in (False, True)),
        ("traditional", {"num_workers": 2, "persistent_workers": True}),
        ("warm-up, drawn before loading", {"num_workers": 2}),
    ],
)
def test_training_on_everything_is_bit_for_bit_the_bare_loop(name, options):
    bare, sizes, *moved = trained(None, **options)
    state, own_sizes, *own_moved = trained(EVERYTHING[name], **options)
    assert own_sizes == sizes == [12, 12, 12, 4] * 2
    assert same_tensors(state, bare)
    assert own_moved == moved


def test_what_came_as_one_object_is_passed_on_as_that_object():
    batches = [(torch.zeros(2, 2), torch.zeros(2)), (torch.ones(1, 2), torch.ones(1))]
    loader = DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch)
    assert all(
        one is other for one, other in zip(select(loader, sb.traditional()), batches, strict=True)
    )


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
        DataLoader(fixture_loaders.Numbered(10), batch_size=4),
        DataLoader(NumberedStream(10), batch_size=4),
        DataLoader(BatchesOfFive(), batch_size=None),
        DataLoader(BatchesOfFive(), batch_size=None, sampler=range(2)),
    ):
        selecting = select(loader, strategy, batch_size=3, leftovers="flush")
        assert numbers(selecting) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
