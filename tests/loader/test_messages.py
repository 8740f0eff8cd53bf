"""What a loader prints and warns of: each thing once, with what became of the examples."""

from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, fixture_data, numbers, select, selective
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import selective_backprop as sb

LOSS = nn.CrossEntropyLoss()


class Stream(IterableDataset):
    def __iter__(self):
        yield from fixture_data(60)


def make_loader(strategy: sb.Strategy, *, data=None, **options) -> sb.SelectiveLoader:
    torch.manual_seed(0)
    loader = DataLoader(fixture_data(60) if data is None else data, batch_size=4)
    return sb.SelectiveLoader(loader, nn.Linear(2, 2), LOSS, strategy, **options)


def line(capsys: pytest.CaptureFixture[str], loader: sb.SelectiveLoader) -> str:
    """What is said of a first batch."""
    batches = iter(loader)
    said = capsys.readouterr()
    assert said == ("", "")  # nothing before it is there
    next(batches)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.rstrip("\n")


WEIGHTED = {"with_selection": True}
HALF = sb.Subset(torch.arange(30), 60)
CASES = [
    (sb.auto(), WEIGHTED, "selects from epoch 2 · batches of 4 · at most 15 steps"),
    (sb.traditional(), {}, "trains on everything · batches of 4 · 15 steps"),
    (sb.pruned(HALF), {}, "trains on 30 examples · batches of 4 · 8 steps"),
    (sb.random_backprop(1 / 3), {}, "selects 33% · batches of 4 · about 5 of 15 steps"),
    (sb.random_backprop(1 / 3), {"batch_size": 6}, "33% · batches of 6 · about 3 of 10 steps"),
    (sb.traditional(), {"batch_size": 6}, "batches of 6 · 10 steps"),
    (sb.selective_backprop(1 / 3), {}, "33% from epoch 2 · batches of 4 · about 5 of 15 steps"),
    (
        *(sb.diet_sb(HALF, rate=1 / 2), {}),
        "selects 50% of 30 examples from epoch 2 · batches of 4 · about 4 of 8 steps",
    ),
    (sb.auto().within(HALF), WEIGHTED, "selects among 30 examples from epoch 2 · batches of 4"),
    # of two training batches one is selected, from 12 candidates, and one takes 4 as they are
    (sb.selective_backprop(1 / 3, start=0.25), {"epochs": 8}, "33% later on · batches of 4"),
    (sb.kath18(), WEIGHTED, "selects 33% while that pays · batches of 4 · 5 to 15 steps"),
    (sb.selective_backprop(1 / 3), {"data": Stream()}, "selects 33% from epoch 2 · batches of 4"),
]


@pytest.mark.parametrize(("strategy", "options", "words"), CASES)
def test_the_summary_says_what_is_selected_and_how_many_steps_to_expect(
    strategy, options, words, capsys
):
    said = line(capsys, make_loader(strategy, **options))
    assert said.startswith(f"{strategy.name}: ")
    assert words in said
    assert said.endswith(words if "data" in options else " steps an epoch")


@pytest.mark.parametrize("strategy", [strategy for strategy, *_ in CASES], ids=lambda s: s.name)
def test_the_summary_of_a_long_training_fits_a_line(strategy, capsys, monkeypatch):
    loader = make_loader(strategy, batch_size=4, epochs=20, **WEIGHTED)
    monkeypatch.setattr(DataLoader, "__len__", lambda self: 99_999)
    assert len(line(capsys, loader)) <= 100


def test_the_summary_comes_once_and_not_for_a_training_that_is_resumed_or_quiet(capsys):
    first, resumed = (make_loader(sb.random_backprop(1 / 3)) for _ in range(2))
    for _ in range(2):
        list(first)
    assert capsys.readouterr().err.count("random-backprop: ") == 1
    resumed.load_state_dict(first.state_dict())
    list(resumed)
    list(make_loader(sb.selective_backprop(1 / 3), quiet=True))
    assert capsys.readouterr() == ("", "")


def epochs_of(loader, losses, capsys):
    """Return what is said in each epoch of a training with such losses."""
    for loss in losses:
        for _, selection in loader:
            loader.record(selection, torch.full((len(selection.weights),), loss))
        yield capsys.readouterr().err


def test_that_next_to_nothing_is_skipped_is_said_after_three_epochs_and_taken_back(capsys):
    said = list(epochs_of(make_loader(sb.auto(), **WEIGHTED), 4 * [1.0] + 4 * [0.01], capsys))
    assert said[1:3] == ["", ""]
    assert "3 epochs: hardly anything to skip so far" in said[3]
    [(epoch, line)] = [(n, line) for n, line in enumerate(said[4:], 4) if line]
    assert int(line.partition("kept ")[2].partition("%")[0]) < 98
    assert f"in {epoch} epochs: by now it skips some" in line
    assert not any(list(epochs_of(make_loader(sb.auto(), **WEIGHTED), 5 * [0.01], capsys))[1:])


def equal_losses(model: nn.Module, batch: Any) -> Tensor:
    return torch.ones(len(batch[1]))


def test_coins_keep_none_of_equal_losses_and_the_warning_says_why():
    loader = select(DataLoader(Numbered(24), 4), selective(draw="bernoulli"), losses=equal_losses)
    with pytest.warns(sb.SelectionWarning, match="had 24 .* 100%") as caught:
        assert list(loader) == []
    assert len(caught) == 1
    assert loader.stats.ties == 1.0
    assert loader.stats.waiting == 0


def test_too_few_candidates_for_a_window_are_warned_about_and_kept():
    loader = select(DataLoader(Numbered(6), 4), selective())
    with pytest.warns(sb.SelectionWarning, match="6 examples wait"):
        assert list(loader) == []
    assert [len(batch) for batch in numbers(loader)] == [4]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"leftovers": "drop"}, r"6 were dropped.*leftovers='carry' or a smaller batch size"),
        (
            {"nonfinite": "skip", "losses": lambda model, batch: torch.full((2,), torch.nan)},
            "6 were skipped because their losses are not finite",
        ),
    ],
    ids=["dropped", "skipped"],
)
def test_an_epoch_without_a_batch_is_explained_by_what_became_of_its_examples(options, reason):
    loader = select(DataLoader(Numbered(6), 2), selective(), batch_size=4, **options)
    with pytest.warns(sb.SelectionWarning, match=reason):
        assert list(loader) == []
