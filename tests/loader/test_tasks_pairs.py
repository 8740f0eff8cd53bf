"""Contrastive losses: over the whole batch there is none per example; an example's term is one."""

from typing import Any

import fixture_tasks as tasks
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

ALL = sb.selective_backprop(rate=1 / 2)


def two_views() -> tuple[Tensor, Tensor]:
    """Each digit twice, in noise of its own."""
    images, _ = tasks.digits()
    noise = torch.Generator().manual_seed(0)
    first, second = (
        (images + 0.3 * torch.randn(images.shape, generator=noise)).flatten(1) for _ in range(2)
    )
    return first, second


def similarities(model: nn.Module, batch: Any) -> Tensor:
    first, second = (functional.normalize(model(view), dim=1) for view in batch)
    return first @ second.T / 0.2


def info_nce(model: nn.Module, batch: Any, reduction: str = "mean") -> Tensor:
    found = similarities(model, batch)
    return functional.cross_entropy(found, torch.arange(len(found)), reduction=reduction)


def terms(model: nn.Module, batch: Any) -> Tensor:
    return info_nce(model, batch, reduction="none")


def matched(first: Tensor, second: Tensor) -> Tensor:
    return functional.cross_entropy(first @ second.T, torch.arange(len(first)))


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))


def loader() -> DataLoader:
    data = TensorDataset(*(view[: tasks.TRAINED] for view in two_views()))
    return DataLoader(data, 64, shuffle=True, drop_last=True)


@pytest.mark.parametrize(
    "options", [{"losses": info_nce}, {"outputs": lambda model, b: (model(b[0]), model(b[1]))}]
)
def test_a_loss_over_the_whole_batch_is_refused_at_the_first_with_what_to_write(options) -> None:
    net, loss_fn = make_net(), None if "losses" in options else matched
    door = sb.SelectiveLoader(loader(), net, loss_fn, ALL, **options)
    with pytest.raises(sb.LossError, match=r"scalar.*contrastive.*term"):
        next(iter(door))
    assert door.stats.batches == 0
    step = sb.SelectiveStep(net, loss_fn, sb.random_scored(rate=1 / 2), **options)
    with pytest.raises(sb.LossError, match=r"scalar.*contrastive.*term"):
        step(next(iter(loader())))


def test_terms_of_each_example_train() -> None:
    net = make_net()
    strategy = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)
    door = sb.SelectiveLoader(loader(), net, None, strategy, losses=terms)
    optimizer = torch.optim.Adam(net.parameters(), 0.003)
    unseen = tuple(view[tasks.TRAINED :] for view in two_views())

    def share_found() -> float:
        with torch.no_grad():
            found = similarities(net, unseen).argmax(1)
        return (found == torch.arange(len(found))).float().mean().item()

    before = share_found()
    for _ in range(4):
        for batch in door:
            optimizer.zero_grad()
            info_nce(net, batch).backward()
            optimizer.step()
    assert door.stats.batches == 4 * 21 / 2
    assert share_found() > 2 * before


def test_a_step_takes_the_examples_that_are_hardest_to_tell_from_their_fellows() -> None:
    net, batch = make_net(), next(iter(loader()))
    top = sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(rate=1 / 4))
    selected = sb.SelectiveStep(net, None, top, losses=terms)(batch)
    assert selected.rows.tolist() == terms(net, batch).topk(16).indices.sort().values.tolist()
    kept = tuple(view[selected.rows] for view in batch)
    assert selected.loss.item() == pytest.approx(info_nce(net, kept).item())
