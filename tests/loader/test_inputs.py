"""Any batch, stream or loader that people have is scored, selected, joined and saved."""

import io
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, NumberedStream, fixture_data, flat, numbers, select, selective
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

import selective_backprop as sb
from selective_backprop._batches.losses import warn_of_mixtures


class Sentences(Dataset):
    """Dictionaries of tokens of varying length, with a name each and a whole vocabulary."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"ids": torch.full((index % 5 + 1,), index), "name": f"n{index}"}

    @staticmethod
    def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
        ids = [example["ids"] for example in examples]
        return {
            "text": {"ids": nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-1)},
            "names": [example["name"] for example in examples],
            "vocabulary": torch.arange(7),
            "scale": 0.5,
        }


def first_token(model: nn.Module, batch: dict[str, Any]) -> Tensor:
    return torch.frac((batch["text"]["ids"][:, 0].double() + 1) * 0.6180339887498949)


@pytest.mark.parametrize("draw", ["exact", "bernoulli"])
def test_dictionaries_of_padded_tokens_with_a_whole_in_them(draw):
    loader = sb.SelectiveLoader(
        DataLoader(Sentences(), 4, collate_fn=Sentences.collate),
        nn.Identity(),
        None,
        selective(draw=draw),
        losses=first_token,
        batch_size=6,
        pad={"text.ids": -1},
        whole={"vocabulary"},
        leftovers="flush",
    )
    rows = 0
    for batch in loader:
        ids = batch["text"]["ids"]
        for row, name in zip(ids, batch["names"], strict=True):
            number = int(name[1:])
            assert row[row >= 0].tolist() == [number] * (number % 5 + 1)
        assert batch["vocabulary"].tolist() == list(range(7))
        assert batch["scale"] == 0.5
        rows += len(ids)
    assert rows == loader.stats.kept > 6
    tokens = DataLoader(Sentences(), 4, collate_fn=Sentences.collate)
    options = {"losses": first_token, "batch_size": 6, "whole": {"vocabulary"}}
    with pytest.raises(sb.BatchError, match=r"pad=\{'text.ids': value\}"):
        list(sb.SelectiveLoader(tokens, nn.Identity(), None, selective(), **options))


@pytest.mark.parametrize(("draw", "workers"), [("exact", 2), ("bernoulli", 0)])
def test_a_stream_is_scored_and_selected_as_it_comes(draw, workers):
    loader = DataLoader(NumberedStream(60), 5, num_workers=workers)
    selecting = select(loader, selective(draw=draw), leftovers="flush")
    for _ in range(2):
        batches = numbers(selecting)
        assert {len(batch) for batch in batches[:-1]} == {5}
        assert len(set(flat(batches))) == len(flat(batches)) == pytest.approx(30, abs=15)
    assert selecting.stats.candidates == selecting.stats.scored == selecting.stats.loaded == 120


class Batches(NumberedStream):
    def __iter__(self) -> Iterator[Any]:
        return iter(DataLoader(Numbered(40), 4))


def test_a_stream_that_makes_its_own_batches():
    loader = DataLoader(Batches(0), batch_size=None)
    assert [len(batch) for batch in numbers(select(loader, selective(), batch_size=4))] == [4] * 5
    with pytest.raises(sb.ConfigurationError, match="pass batch_size="):
        select(loader, selective())


def test_batches_out_of_order_are_a_stream():
    loader = DataLoader(Numbered(40), 4, num_workers=2, in_order=False)
    selecting = select(loader, selective(), with_selection=True)
    assert all(selection.indices is None for _, selection in selecting)
    assert selecting.stats.kept == 20
    with pytest.raises(sb.LoaderError, match="in_order=False"):
        select(loader, sb.random_backprop(1 / 2))


class Doubling(DataLoader):
    """A loader of somebody else's, whose iteration does something more."""

    def __init__(self, *args: Any, factor: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self.factor = factor

    def __iter__(self) -> Iterator[Any]:
        for inputs, targets in super().__iter__():
            yield self.factor * inputs, targets


@pytest.mark.parametrize("strategy", [sb.traditional(), sb.random_backprop(1 / 2), selective()])
def test_a_subclass_of_the_data_loader_iterates_in_its_own_way(strategy):
    for inputs, targets in select(Doubling(Numbered(20), 4, factor=2.0), strategy):
        assert torch.equal(inputs[:, 0], 2.0 * targets)


class Described(Tensor):
    """As images of MONAI and torchvision are."""


def described(examples: list[Any]) -> list[Tensor]:
    return [column.as_subclass(Described) for column in default_collate(examples)]


@pytest.mark.parametrize("strategy", [selective(), sb.stale_sb(1 / 2), sb.auto()])
def test_a_subclass_of_tensors_is_scored_joined_and_saved(strategy):
    model, loss_fn = nn.Linear(2, 2), nn.CrossEntropyLoss()

    def make() -> sb.SelectiveLoader:
        loader = DataLoader(fixture_data(), 5, collate_fn=described)
        options = {"batch_size": 7, "generator": torch.Generator()}
        return sb.SelectiveLoader(loader, model, loss_fn, strategy, **options)

    def train(loader: sb.SelectiveLoader) -> list[Any]:
        weighing, found = loader.loss_fn, []
        for inputs, targets in loader:
            assert type(inputs) is type(targets) is Described
            weighing(model(inputs), targets).backward()
            found.append(inputs.tolist())
        return found

    whole, resumed = make(), make()
    train(whole)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert train(resumed) == train(whole)


def mix(images: Tensor, labels: Tensor, share: float = 0.7) -> tuple[Tensor, Tensor]:
    """MixUp: each example and its neighbour in the batch, shared."""
    soft = functional.one_hot(labels, 10).float()
    return tuple(share * part + (1 - share) * part.roll(1, 0) for part in (images, soft))


def begin(strategy: sb.Strategy, mixing: Any) -> list[str]:
    """Take the first batches, and return what was warned of."""

    def collate(examples: list[Any]) -> Any:
        batch = default_collate(examples)
        return batch if mixing is None else mixing(*batch)

    generator = torch.Generator().manual_seed(0)
    images = torch.randn(96, 64, generator=generator)
    data = TensorDataset(images, torch.randint(10, (96,), generator=generator))
    loader = sb.SelectiveLoader(
        DataLoader(data, 32, collate_fn=collate),
        *(nn.Linear(64, 10), nn.CrossEntropyLoss(), strategy),
        with_selection=True,
        epochs=4,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in zip(range(2), loader, strict=False):
            pass
    return [str(warning.message) for warning in caught]


BY_INDEX = [
    sb.stale_sb(rate=1 / 2, epochs=3),
    sb.predicted_sb(rate=1 / 2),
    sb.rho_loss(torch.zeros(96), rate=1 / 2),
    sb.easy_skip(),
]


@pytest.mark.parametrize("strategy", BY_INDEX, ids=lambda strategy: strategy.name)
def test_mixtures_in_the_collate_function_are_warned_of_once_where_indices_count(strategy) -> None:
    [said] = begin(strategy, mix)
    assert "mixed from two" in said
    assert "loader yields" in said
    assert begin(strategy, None) == []


@pytest.mark.parametrize("make", [sb.selective_backprop, sb.random_backprop, sb.traditional])
def test_mixtures_are_not_warned_of_where_no_loss_is_filed_by_index(make) -> None:
    assert begin(make() if make is sb.traditional else make(rate=1 / 2), mix) == []


ONE_HOT = functional.one_hot(torch.arange(8) % 4, 5).float()


@pytest.mark.parametrize(
    ("targets", "mixed"),
    [
        (0.6 * ONE_HOT + 0.4 * ONE_HOT.roll(1, 0), True),
        ((0.6 * ONE_HOT + 0.4 * ONE_HOT.roll(1, 0)).half(), True),
        (0.9 * (0.5 * ONE_HOT + 0.5 * ONE_HOT.roll(1, 0)) + 0.1 / 5, True),  # and smoothed
        (ONE_HOT, False),
        (0.9 * ONE_HOT + 0.1 / 5, False),  # smoothed alone
        (torch.linspace(0, 3, 40).view(8, 5).sin().softmax(1), False),  # of a teacher
        (torch.tensor([[0.3, 0.7, 0.0, 0.0], [0.1, 0.6, 0.3, 0.0]]), False),  # of a sure one
        (torch.tensor([[0.3, 0.7], [1.0, 0.0]]), False),  # two classes: nothing can be told
        (torch.zeros(0, 5), False),
        (torch.ones(8, 5) * torch.nan, False),
        (2 * ONE_HOT + ONE_HOT.roll(1, 0), False),  # no probabilities
    ],
)
def test_mixed_targets_are_told_from_others(targets, mixed) -> None:
    with pytest.warns(sb.SelectionWarning, match="MixUp") if mixed else nullcontext():
        warn_of_mixtures({"pixels": torch.rand(8, 1, 8, 8), "answers": {"soft": targets}})
