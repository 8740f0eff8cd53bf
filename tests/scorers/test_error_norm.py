"""The error norm is that of the loss's gradient with respect to the outputs."""

import math

import pytest
import torch
from fixture_loaders import fixture_data, losses_by_number
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.scorers._forward import error_norms


def fixture_outputs(rows: int = 9, classes: int = 4, spread: float = 3.0) -> tuple:
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(rows, classes, generator=generator, dtype=torch.float64) * spread
    return outputs, torch.arange(rows) % classes


@pytest.mark.parametrize("soft", [False, True])
def test_it_is_the_norm_of_the_losss_gradient_with_respect_to_the_outputs(soft):
    outputs, targets = fixture_outputs()
    if soft:
        targets = torch.randn_like(outputs).softmax(1)
    outputs.requires_grad_(True)
    functional.cross_entropy(outputs, targets, reduction="sum").backward()
    found = error_norms(outputs.detach(), targets)
    assert torch.allclose(found, outputs.grad.norm(dim=1), rtol=1e-12, atol=0)


def test_it_keeps_its_digits_where_the_model_is_sure():
    outputs = torch.tensor([[30.0, 0.0], [60.0, 0.0]])
    found = error_norms(outputs, torch.tensor([0, 0])).tolist()
    assert found == pytest.approx([math.sqrt(2) * math.exp(-30), math.sqrt(2) * math.exp(-60)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_in_single(dtype):
    outputs, targets = fixture_outputs()
    found = error_norms(outputs.to(dtype), targets)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), error_norms(outputs.to(dtype).double(), targets))


def test_a_target_that_is_no_class_gives_no_number():
    outputs, _ = fixture_outputs(3)
    found = error_norms(outputs, torch.tensor([0, -100, 4]))
    assert found.isnan().tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (torch.ones(3), torch.zeros(3, dtype=torch.int64), r"\(3,\) and \(3,\)"),
        (torch.ones(3, 1), torch.zeros(3, dtype=torch.int64), "2 classes"),
        (torch.ones(3, 2, 2), torch.zeros(3, dtype=torch.int64), r"\(3, 2, 2\)"),
        ((torch.ones(3, 2),), torch.zeros(3), "got tuple"),
        (torch.ones(3, 2), None, "NoneType"),
        (torch.ones(3, 2), torch.zeros(3), r"\(3,\).*torch.float32"),
        (torch.ones(3, 2), torch.zeros(4, dtype=torch.int64), r"\(4,\)"),
        (torch.ones(3, 2), torch.ones(3, 3), r"\(3, 3\)"),
    ],
)
def test_what_is_no_classification_is_refused(outputs, targets, message):
    with unhooked(), pytest.raises(sb.LossError, match=message):
        error_norms(outputs, targets)


def make_loader(strategy: sb.Strategy, model: nn.Module, loss_fn=None, **options):
    loader = DataLoader(fixture_data(), 5)
    return sb.SelectiveLoader(loader, model, loss_fn, strategy, with_selection=True, **options)


ERROR_NORM = sb.Strategy("norms", sb.scorers.Forward("error-norm"), sb.selectors.Top(1 / 2))


@pytest.mark.parametrize(
    "strategy",
    [
        ERROR_NORM,
        sb.kath18(),
        sb.stale_sb(1 / 2, scorer=sb.scorers.Forward("error-norm")),
        sb.kakurenbo(scorer=sb.scorers.Forward("error-norm")),
        sb.rho_loss(torch.ones(40), 1 / 2, scorer=sb.scorers.Forward("error-norm")),
    ],
    ids=lambda strategy: strategy.name,
)
def test_losses_alone_are_refused_when_the_loader_is_built(strategy):
    with pytest.raises(sb.ConfigurationError, match=r"outputs.*losses="):
        make_loader(strategy, nn.Linear(2, 2), losses=losses_by_number, epochs=9)
    outputs = lambda model, batch: (model(batch[0]), batch[1])  # noqa: E731
    options = {"losses": losses_by_number, "outputs": outputs, "epochs": 9}
    next(iter(make_loader(strategy, nn.Linear(2, 2), **options)))
