"""Regression learns by both doors; losses that are none of each example are refused."""

import fixture_tasks as tasks
import pytest
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

ALL = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)


def diabetes() -> tuple[torch.Tensor, torch.Tensor]:
    """Ten measurements of 442 patients, and how far the disease went a year later."""
    inputs, targets = (
        torch.tensor(part, dtype=torch.float32) for part in load_diabetes(return_X_y=True)
    )
    return (inputs * 20), ((targets - targets.mean()) / targets.std()).unsqueeze(1)


def make_regression() -> tasks.Task:
    torch.manual_seed(0)
    inputs, targets = diabetes()

    def huber(output: list[float], target: list[float]) -> float:
        gap = abs(output[0] - target[0])
        return gap**2 / 2 if gap < 1 else gap - 1 / 2

    net = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    return tasks.Task(TensorDataset(inputs[:352], targets[:352]), net, nn.HuberLoss(), huber)


def explained(net: nn.Module) -> float:
    """The share of the variance that is explained of patients never seen."""
    inputs, targets = (part[352:] for part in diabetes())
    with torch.no_grad():
        left = functional.mse_loss(net.eval()(inputs), targets)
    return 1 - left.item() / targets.var().item()


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss_fn", [nn.MSELoss(), nn.SmoothL1Loss(), functional.l1_loss])
def test_targets_that_lack_the_outputs_last_axis_are_refused_at_the_first_batch(loss_fn) -> None:
    inputs, targets = diabetes()
    net = nn.Linear(10, 1)
    loader = DataLoader(TensorDataset(inputs, targets.squeeze(1)), 8)
    crossed = r"outputs of shape \(8, 1\) and targets of shape \(8,\) were broadcast to \(8, 8\)"
    with pytest.raises(sb.LossError, match=crossed):
        next(iter(sb.SelectiveLoader(loader, net, loss_fn, sb.selective_backprop(rate=1 / 2))))
    with pytest.raises(sb.LossError, match=crossed):
        sb.SelectiveStep(net, loss_fn, ALL)(next(iter(loader)))
    squeezed = nn.Sequential(net, nn.Flatten(0))
    assert len(sb.SelectiveStep(squeezed, loss_fn, ALL)(next(iter(loader))).losses) == 4


@pytest.mark.parametrize("stepwise", [False, True])
def test_a_regression_learns_from_the_examples_of_the_highest_loss(stepwise) -> None:
    task = make_regression()
    if stepwise:
        for _ in range(6):
            tasks.train_with_step(task, 5)
    else:
        stats = tasks.train_with_loader(task, 6)
        assert stats.kept == stats.candidates / 2
    assert explained(task.model) > 0.45


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
    door = sb.SelectiveLoader(loader, net, loss_fn, sb.selective_backprop(1 / 2), **options)
    with pytest.raises(sb.LossError, match=r"scalar.*contrastive.*term"):
        next(iter(door))
    assert door.stats.batches == 0
    step = sb.SelectiveStep(net, loss_fn, sb.random_scored(rate=1 / 2), **options)
    with pytest.raises(sb.LossError, match=r"scalar.*contrastive.*term"):
        step(next(iter(loader)))
