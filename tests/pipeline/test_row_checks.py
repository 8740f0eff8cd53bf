"""An item whose first axis does not hold the examples is refused or named, never cut there."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, NumberedStream, select, selective, streams
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb

Collate = Callable[[list[Any]], Any]
WARM = selective(warmup_epochs=1)

LENGTHS = [3, 8, 1, 5, 2, 4, 7, 6]  # of the examples, in turn


class Sequences(Dataset):
    """Example `i` is `(i, steps that show i)`; each reading is noted."""

    def __init__(self, lengths: list[int], examples: int = 48) -> None:
        self.lengths, self.examples = lengths, examples
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        self.read.append(index)
        steps = self.lengths[index % len(self.lengths)]
        return index, 10 * index + torch.arange(1.0, steps + 1)


def number(model: nn.Module, batch: Any) -> Tensor:
    return batch["number"].double() % 7


def wrap(
    collate: Collate,
    strategy: sb.Strategy = WARM,
    data: Any = None,
    size: int = 8,
    workers: int = 0,
    **options: Any,
) -> sb.SelectiveLoader:
    data = Sequences([8]) if data is None else data
    loader = DataLoader(data, size, collate_fn=collate, num_workers=workers)
    losses = number if strategy.scores else None
    options = {"losses": losses, "batch_size": 8, "quiet": True} | options
    return sb.SelectiveLoader(loader, nn.Identity(), None, strategy, **options)


def start(collate: Collate, *arguments: Any, **options: Any) -> list[Any]:
    """Return the batches of two epochs."""
    loader = wrap(collate, *arguments, **options)
    return [batch for _ in range(2) for batch in loader]


def with_item(item: Callable[[list[Tensor]], Any]) -> Collate:
    """Collate numbers, and what `item` makes of the steps of each example."""

    def collate(examples: list[Any]) -> Any:
        numbers = torch.tensor([index for index, _ in examples])
        return {"number": numbers, "item": item([steps for _, steps in examples])}

    return collate


def counts(steps: list[Tensor]) -> Tensor:
    return torch.tensor([len(each) for each in steps])


def places(steps: list[Tensor]) -> Tensor:
    return torch.arange(len(steps)).repeat_interleave(counts(steps))


time_first = with_item(pad_sequence)

TRANSPOSED, BOXES, PLACES = (
    r"\.transpose\(0, 1\)",
    "one row for each example, padded",
    "positions in the batch",
)


@pytest.mark.parametrize(
    ("lengths", "collate", "message"),
    [
        ([8], time_first, TRANSPOSED),
        (LENGTHS, time_first, TRANSPOSED),
        ([8], with_item(lambda s: {"state": (torch.zeros(8, len(s), 3), 1)}), TRANSPOSED),
        ([8], with_item(lambda s: torch.zeros(8, 3, len(s))), r"\.transpose\(0, 2\)"),
        ([2, 0], with_item(torch.cat), BOXES),
        ([2, 0], with_item(places), BOXES),
        ([1], with_item(places), PLACES),
        ([1], with_item(lambda s: counts(s).cumsum(0) - counts(s)), PLACES),
        ([8], with_item(lambda s: torch.ones(8)), r"same in every batch, pass whole=\{'item'\}"),
        ([8], with_item(lambda s: list("abcdefgh")), r"pass whole=\{'item'\}"),
    ],
)
def test_an_item_with_as_many_entries_as_rows_by_chance_is_refused_at_the_first_batch(
    lengths, collate, message
):
    with pytest.raises(sb.BatchError, match=message) as refusal:
        start(collate, data=Sequences(lengths))
    assert "'item" in str(refusal.value)
    assert ("whole=" in str(refusal.value)) == ("whole=" in message)


@pytest.mark.parametrize("item", [places, pad_sequence])
def test_batches_of_one_example_are_compared_with_a_batch_of_two(item):
    with pytest.raises(sb.BatchError, match="'item'"):
        start(with_item(item), data=Sequences([1]), size=1)


def only_several(steps: list[Tensor]) -> Tensor:
    assert len(steps) > 1
    return torch.stack(steps)


@pytest.mark.parametrize(
    ("lengths", "item"),
    [
        ([8], torch.stack),  # as many steps as rows, and the rows are first
        (LENGTHS, lambda s: pad_sequence(s, batch_first=True)),
        ([1, 1, 8], lambda s: pad_sequence(s, batch_first=True)),
        ([3], lambda s: torch.stack(s)[:, None].squeeze()),  # an example alone loses its axis
        ([3], only_several),
        ([3], lambda s: torch.stack(s).flip(0) * 0.3 + torch.stack(s) * 0.7),  # MixUp
        ([3], lambda s: torch.stack(s) + torch.rand(len(s), 3)),
        ([3], lambda s: [f"{each}" for each in s]),
        ([3], counts),
        ([3], lambda s: torch.tensor(len(s)).sign()),
        ([1], lambda s: torch.arange(len(s)).flip(0)),
    ],
)
@pytest.mark.parametrize("size", [8, 2])
def test_items_with_one_row_for_each_example_pass_without_a_word(lengths, item, size):
    assert start(with_item(item), data=Sequences(lengths), size=size, pad={"item": 0.0})


def test_an_example_alone_is_loaded_once_and_moves_no_random_stream():
    generator = torch.Generator()

    class Noisy(Sequences):
        def __init__(self) -> None:
            super().__init__([3])
            self.generator = generator

        def __getitem__(self, index: int) -> tuple[int, Tensor]:
            index, steps = super().__getitem__(index)
            return index, steps + torch.rand(3) + torch.rand(3, generator=self.generator)

    def moved(strategy: sb.Strategy) -> tuple[list[int], Any]:
        torch.manual_seed(0)
        generator.manual_seed(0)
        start(with_item(torch.stack), strategy, data := Noisy())
        return data.read, (streams(), generator.get_state().tolist())

    plain, state = moved(sb.traditional())
    assert plain == [*range(48)] * 2
    assert moved(WARM) == ([*range(8), 7, 0, *range(8, 48), *range(48)], state)


def test_workers_load_the_example_so_that_no_file_is_opened_in_this_process():
    data = Numbered(48)
    data.opened = 0

    def collate(examples: list[Any]) -> Any:
        data.opened += 1
        return {"number": torch.tensor([index for _, index in examples])}

    start(collate, data=data, workers=2)
    assert not data.opened
    assert data.reads.tolist() == [3, *[2] * 6, 3, *[2] * 40]


def test_a_collate_function_of_torch_needs_no_second_look():
    data = Numbered(48)
    assert list(select(DataLoader(data, 8), selective()))
    assert data.reads.tolist() == [1] * 48


def longest_first(examples: list[Any]) -> Any:
    examples = sorted(examples, key=lambda example: -len(example[1]))
    return with_item(lambda steps: pad_sequence(steps, batch_first=True))(examples)


@pytest.mark.parametrize("strategy", [sb.auto(), sb.stale_sb(1 / 2), sb.traditional(), WARM])
def test_examples_in_another_order_are_refused_where_indices_are_used_and_pass_elsewhere(strategy):
    with pytest.raises(sb.BatchError, match=r"example \d of .* row \d, but is row \d .* order"):
        start(longest_first, strategy, Sequences(LENGTHS), with_selection=True)
    if strategy in (sb.traditional(), WARM):
        assert start(longest_first, strategy, Sequences(LENGTHS), pad={"item": 0.0})


class Graphs:
    """A batch that is a single object."""

    def __init__(self, examples: list[Any]) -> None:
        self.numbers = torch.tensor([index for index, _ in examples])


@pytest.mark.parametrize(
    "strategy",
    [
        sb.traditional(),
        sb.random_backprop(1 / 2),
        sb.pruned(sb.Subset(torch.arange(24), 48)),
        sb.recorded_sb(1 / 2, schedule=sb.Schedule()),
    ],
)
@pytest.mark.parametrize(
    "collate",
    [
        time_first,
        with_item(lambda steps: nn.utils.rnn.pack_sequence(steps, enforce_sorted=False)),
        with_item(lambda steps: torch.stack(steps).to_sparse()),
        Graphs,
    ],
)
def test_batches_whose_examples_are_chosen_before_loading_need_no_rows(strategy, collate):
    whole = {""} if collate is Graphs else ()
    loader = wrap(collate, strategy, with_selection=True, whole=whole)
    for batch, selection in (pair for _ in range(2) for pair in loader):
        numbers = batch.numbers if isinstance(batch, Graphs) else batch["number"]
        assert torch.equal(selection.indices, numbers)
        loader.record(selection, numbers / 48, targets=())
    assert loader.stats.batches > 3


@pytest.mark.parametrize("whole", [(), {""}])
def test_an_object_whose_rows_must_be_taken_is_refused_with_advice_that_can_be_followed(whole):
    with pytest.raises(sb.BatchError, match="auto and random_backprop") as refusal:
        start(Graphs, whole=whole)
    assert "whole=" not in str(refusal.value)


class Stream(NumberedStream):
    """Yields a batch again and again."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __iter__(self) -> Any:
        return iter([self.batch] * 4)


def first_column(model: nn.Module, batch: Any) -> Tensor:
    return batch[0][:, 0]


def step_on(batch: Any) -> None:
    step = sb.SelectiveStep(nn.Identity(), None, selective(), losses=first_column)
    assert [len(step(batch).rows) for _ in range(2)]


def stream_of(batch: Any) -> None:
    loader = DataLoader(Stream(batch), None)
    options = {"losses": first_column, "batch_size": 9}
    assert list(sb.SelectiveLoader(loader, nn.Identity(), None, selective(), **options))


def loaded_as_one(batch: Any) -> None:
    """An example alone cannot be loaded."""
    loader = DataLoader([None] * 36, 9, collate_fn=lambda examples: batch if examples[1:] else 1)
    selecting = sb.SelectiveLoader(loader, nn.Identity(), None, selective(), losses=first_column)
    assert list(selecting)


@pytest.mark.parametrize("use", [step_on, stream_of, loaded_as_one])
@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (torch.ones(9, 9, 2), r"'1' has 9 .*transpose\(0, 1\)"),
        (torch.tensor([0, 0, 0, 2, 3, 3, 5, 8, 8]), "'1' ascends"),
        (torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1]), ""),  # labels of data stored by class
        (torch.arange(9), ""),  # the numbers of the examples
        (torch.ones(9, 8, 9), ""),
    ],
)
def test_what_only_an_example_alone_could_show_is_said_once(use, item, sentence, recwarn):
    use((torch.rand(9, 4), item))
    assert bool(sentence) == len(recwarn)
    assert not sentence or re.search(sentence, str(recwarn.pop(sb.SelectionWarning).message))
