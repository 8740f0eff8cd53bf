"""What the documentation shows how to write is short, trains, and does what it says."""

import fixture_extend
import pytest
import torch
from fixture_language import TRAINED, digits
from fixture_loaders import Numbered, select
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

Margin, Gentle = fixture_extend.NAMES["Margin"], fixture_extend.NAMES["Gentle"]


def test_a_scorer_and_a_selector_take_less_than_thirty_lines() -> None:
    scorer, _, selector = fixture_extend.EXAMPLES[:3]
    for code, first in (
        (scorer, "class Margin(sb.scorers.AbstractScorer):"),
        (selector, "class Gentle(sb.selectors.AbstractSelector):"),
    ):
        assert first in code.splitlines()
        assert len(code.splitlines()) < 30


def test_a_strategy_of_both_trains() -> None:
    torch.manual_seed(0)
    data = TensorDataset(*(part[:TRAINED] for part in digits()))
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    found = {"train_loader": DataLoader(data, 32, shuffle=True), "model": net}
    found |= fixture_extend.NAMES | {"loss_fn": nn.CrossEntropyLoss()}
    exec(fixture_extend.EXAMPLES[-1], found)
    loader = found["loader"]
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(3):
        for images, labels in loader:
            optimizer.zero_grad()
            found["loss_fn"](net(images), labels).backward()
            optimizer.step()
    assert loader.stats.kept == pytest.approx(1400 * (1 + 2 / 3), abs=64)
    images, labels = (part[TRAINED:] for part in digits())
    with torch.no_grad():
        assert (net(images).argmax(1) != labels).float().mean() < 0.2


def test_a_margin_is_how_far_the_best_wrong_class_is_ahead() -> None:
    batch = torch.tensor([[3.0, 1.0], [3.0, 0.0], [1.0, 1.0]]), torch.tensor([0, 1, 0])
    strategy = sb.top_k(2 / 3, scorer=Margin())
    step = sb.SelectiveStep(nn.Identity(), nn.CrossEntropyLoss(), strategy)
    context = sb.selectors.Context(2, 3, nn.Identity(), outputs=lambda model, batch: batch)
    assert Margin().start(context).score(batch, None).tolist() == [-2.0, 3.0, 0.0]
    assert step(batch).rows.tolist() == [1, 2]


def test_who_gives_losses_alone_has_no_margins() -> None:
    strategy = sb.Strategy("margin", Margin(), Gentle(1 / 3))
    losses = {"losses": lambda model, batch: model(batch[0]).sum(1)}
    with pytest.raises(sb.ConfigurationError, match="outputs=callable"):
        sb.SelectiveLoader(DataLoader(Numbered(40), 8), nn.Identity(), None, strategy, **losses)


def test_scores_of_every_other_epoch_select_before_loading_in_between() -> None:
    data = Numbered(40)
    scorer = fixture_extend.NAMES["EveryOther"](sb.scorers.Forward())
    strategy = sb.Strategy("every other", scorer, sb.selectors.Top(1 / 4))
    loader = select(DataLoader(data, 8), strategy, batch_size=2)
    scored, read = [], []
    for _ in range(4):
        before = loader.stats
        data.reads.zero_()
        list(loader)
        scored.append(loader.stats.since(before).scored)
        read.append(int(data.reads.sum()))
    assert scored == [40, 0, 40, 0]
    assert read == [40, 10, 40, 10]
