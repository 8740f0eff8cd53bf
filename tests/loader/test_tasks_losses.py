"""Losses that are none of each example are refused by the loader and the step."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

ALL = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss_fn", [nn.MSELoss(), nn.SmoothL1Loss(), functional.l1_loss])
def test_targets_that_lack_the_outputs_last_axis_are_refused_at_the_first_batch(loss_fn) -> None:
    net = nn.Linear(10, 1)
    loader = DataLoader(TensorDataset(torch.randn(32, 10), torch.randn(32)), 8)
    crossed = r"outputs of shape \(8, 1\) and targets of shape \(8,\) were broadcast to \(8, 8\)"
    with pytest.raises(sb.LossError, match=crossed):
        next(iter(sb.SelectiveLoader(loader, net, loss_fn, sb.selective_backprop(rate=1 / 2))))
    with pytest.raises(sb.LossError, match=crossed):
        sb.SelectiveStep(net, loss_fn, ALL)(next(iter(loader)))
    squeezed = nn.Sequential(net, nn.Flatten(0))
    assert len(sb.SelectiveStep(squeezed, loss_fn, ALL)(next(iter(loader))).losses) == 4


def matched(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """A contrastive loss, which is one of the whole batch."""
    return functional.cross_entropy(first @ second.T, torch.arange(len(first)))


@pytest.mark.parametrize("name", ["losses", "outputs"])
def test_a_loss_over_the_whole_batch_is_refused_at_the_first_with_what_to_write(name) -> None:
    def outputs(model, batch):
        return model(batch[0]), model(batch[1])

    options = {"losses": lambda model, batch: matched(*outputs(model, batch))}
    options = options if name == "losses" else {"outputs": outputs}
    loss_fn = None if name == "losses" else matched
    net, loader = nn.Linear(4, 2), DataLoader(TensorDataset(*torch.randn(2, 16, 4)), 8)
    selecting = sb.SelectiveLoader(loader, net, loss_fn, sb.selective_backprop(1 / 2), **options)
    with pytest.raises(sb.LossError, match=r"scalar.*contrastive.*term"):
        next(iter(selecting))
    assert selecting.stats.batches == 0
    step = sb.SelectiveStep(net, loss_fn, sb.random_scored(rate=1 / 2), **options)
    with pytest.raises(sb.LossError, match=r"scalar.*contrastive.*term"):
        step(next(iter(loader)))
