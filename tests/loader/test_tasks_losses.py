"""Regression, segmentation and several labels an example, trained on real data by both doors."""

import math

import fixture_tasks as tasks
import pytest
import reference
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

IGNORED = 255
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


def make_segmentation() -> tasks.Task:
    """Ink or paper, from noisy images; what is neither is left out."""
    torch.manual_seed(0)
    images, _ = tasks.digits()
    noisy = images + 0.2 * torch.randn_like(images)
    targets = (images > 0.5).long().masked_fill((images - 0.5).abs() < 0.2, IGNORED).squeeze(1)

    def mean_over_pixels(output: list, target: list) -> float:
        pixels = torch.tensor(output).flatten(1).T.tolist()
        answers = [answer for row in target for answer in row]
        return reference.token_cross_entropy(pixels, answers, ignored=IGNORED)

    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
    loss_fn = nn.CrossEntropyLoss(ignore_index=IGNORED)
    return tasks.Task(TensorDataset(noisy, targets), net, loss_fn, mean_over_pixels)


def several_labels() -> tuple[torch.Tensor, torch.Tensor]:
    """Four things that are true of a digit, or not: even, prime, round, large."""
    images, digits = tasks.digits()
    sets = ([0, 2, 4, 6, 8], [2, 3, 5, 7], [0, 3, 6, 8, 9], [5, 6, 7, 8, 9])
    truths = torch.tensor([[float(digit in true) for true in sets] for digit in range(10)])
    return images, truths[digits]


def make_labelling() -> tasks.Task:
    torch.manual_seed(0)
    weights = [1.0, 1.5, 1.0, 3.0]

    def mean_over_labels(output: list[float], target: list[float]) -> float:
        terms = [
            weight * math.log1p(math.exp(-logit)) if true else math.log1p(math.exp(logit))
            for logit, true, weight in zip(output, target, weights, strict=True)
        ]
        return sum(terms) / len(terms)

    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    data = TensorDataset(*(part[: tasks.TRAINED] for part in several_labels()))
    loss_fn = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weights))
    return tasks.Task(data, net, loss_fn, mean_over_labels)


def counted_right(task: tasks.Task) -> float:
    noisy, targets = task.data.tensors
    with torch.no_grad():
        hit = task.model(noisy).argmax(1) == targets
    return hit[targets != IGNORED].float().mean().item()


def labelled_right(task: tasks.Task) -> float:
    images, truths = (part[tasks.TRAINED :] for part in several_labels())
    with torch.no_grad():
        return ((task.model(images) > 0) == truths.bool()).float().mean().item()


# What is trained, how good it is, for how many epochs and steps of each, and how good it gets.
LEARNED = {
    "regression": (make_regression, lambda task: explained(task.model), 6, 5, 0.45),
    "segmentation": (make_segmentation, counted_right, 1, 28, 0.97),
    "several labels": (make_labelling, labelled_right, 3, 21, 0.8),
}


@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize("name", LEARNED)
def test_every_task_learns_from_the_examples_of_the_highest_loss(name, stepwise) -> None:
    make, goodness, epochs, steps, least = LEARNED[name]
    task = make()
    if stepwise:
        for _ in range(epochs):
            tasks.train_with_step(task, steps)
    else:
        stats = tasks.train_with_loader(task, epochs)
        assert stats.kept == stats.candidates / 2
    assert goodness(task) > least
