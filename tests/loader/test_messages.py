"""What a loader prints and warns of: each thing once, with what became of the examples."""

from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, fixture_data, select, selective
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb


def make_loader(strategy: sb.Strategy, **options) -> sb.SelectiveLoader:
    loader = DataLoader(fixture_data(60), batch_size=4)
    return sb.SelectiveLoader(loader, nn.Linear(2, 2), nn.CrossEntropyLoss(), strategy, **options)


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
    (sb.auto(), WEIGHTED, "selects by loss from epoch 2 · batches of 4"),
    (sb.traditional(), {}, "trains on everything · batches of 4"),
    (sb.infobatch(), {"epochs": 8, **WEIGHTED}, "selects by loss · batches of 4"),
    (sb.pruned(HALF), {}, "trains on 30 examples · batches of 4"),
    (sb.random_backprop(1 / 3), {}, "selects 33% · batches of 4"),
    (sb.random_backprop(1 / 3), {"batch_size": 6}, "selects 33% · batches of 6"),
    (sb.selective_backprop(1 / 3), {}, "selects 33% from epoch 2 · batches of 4"),
    (sb.diet_sb(HALF, rate=1 / 2), {}, "selects 50% of 30 examples from epoch 2 · batches of 4"),
    (
        sb.auto().within(HALF),
        WEIGHTED,
        "selects by loss among 30 examples from epoch 2 · batches of 4",
    ),
    (
        sb.selective_backprop(1 / 3, start=0.25),
        {"epochs": 8},
        "selects 33% later on · batches of 4",
    ),
    (sb.kath18(), WEIGHTED, "selects 33% while that pays · batches of 4"),
]


@pytest.mark.parametrize(("strategy", "options", "words"), CASES)
def test_the_summary_says_what_is_selected_and_from_when_on(strategy, options, words, capsys):
    said = line(capsys, make_loader(strategy, **options))
    assert said == f"{strategy.name}: {words}"


def test_the_summary_comes_once_and_not_for_a_training_that_is_resumed_or_quiet(capsys):
    first, resumed = (make_loader(sb.random_backprop(1 / 3)) for _ in range(2))
    for _ in range(2):
        list(first)
    assert capsys.readouterr().err.count("random-backprop: ") == 1
    resumed.load_state_dict(first.state_dict())
    list(resumed)
    list(make_loader(sb.selective_backprop(1 / 3), quiet=True))
    assert capsys.readouterr() == ("", "")


def equal_losses(model: nn.Module, batch: Any) -> Tensor:
    return torch.ones(len(batch[1]))


def test_coins_keep_none_of_equal_losses_and_the_warning_says_why():
    loader = select(DataLoader(Numbered(24), 4), selective(draw="bernoulli"), losses=equal_losses)
    with pytest.warns(sb.SelectionWarning, match="had 24 .* 100%") as caught:
        assert list(loader) == []
    assert len(caught) == 1
    assert loader.stats.ties == 1.0
    assert loader.stats.waiting == 0


NAN = {"nonfinite": "skip", "losses": lambda model, batch: torch.full((2,), torch.nan)}
DROP = {"leftovers": "drop"}, "6 dropped.*leftovers='carry' or a smaller batch size"


@pytest.mark.parametrize(("options", "reason"), [DROP, (NAN, "6 nonfinite"), ({}, "6 waiting")])
def test_an_epoch_without_a_batch_is_explained_by_what_became_of_its_examples(options, reason):
    loader = select(DataLoader(Numbered(6), 2), selective(), batch_size=4, **options)
    with pytest.warns(sb.SelectionWarning, match=reason):
        assert list(loader) == []


@pytest.mark.parametrize("strategy", [sb.auto(), sb.selective_backprop(1 / 3), sb.infobatch()])
def test_a_loader_built_anew_for_each_epoch_is_warned_of_once(recwarn, strategy):
    data, model = fixture_data(60), nn.Linear(2, 2)

    def train(model, epochs=1, data=data):
        bare, options = DataLoader(data, batch_size=4), {"epochs": 9, "with_selection": True}
        loader = sb.SelectiveLoader(bare, model, nn.CrossEntropyLoss(), strategy, **options)
        for _, (_, selection) in ((epoch, each) for epoch in range(epochs) for each in loader):
            loader.record(selection, torch.rand(len(selection.weights)), targets=())

    for _ in range(3):  # as in cross-validation, in later stages, or in a search
        train(nn.Linear(2, 2))
        train(model, data=fixture_data(60))
        train(model, 2)
    assert not recwarn.list
    for _ in range(4):
        train(model)
    assert ["before the loop over epochs" in str(each.message) for each in recwarn] == [True]
