"""The selection pass: the model's own losses or error norms, and a model that never noticed."""

import copy
import math

import pytest
import torch
from fixture_loaders import cross_entropies as losses
from fixture_loaders import fixture_data, losses_by_number
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.scorers._forward import error_norms

BATCH = (torch.randn(8, 4), torch.arange(8) % 3)
INDICES = torch.arange(8)


def start(model, scorer=None, *, of=losses, device=None):
    scorer = scorer or sb.scorers.Forward()
    return scorer.start(sb.scorers.Context(8, None, model=model, losses=of, device=device))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)
    )


def test_scores_are_the_losses_of_the_model_in_eval_mode():
    model = net()
    scores = start(model).score(BATCH, INDICES)
    model.eval()
    with torch.no_grad():
        expected = losses(model, BATCH)
    assert torch.equal(scores, expected)


def test_in_training_mode_scores_come_from_batch_statistics():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    scores = start(model, sb.scorers.Forward(training=True)).score(BATCH, INDICES)
    expected = losses(copy.deepcopy(model), BATCH)
    assert torch.equal(scores, expected.detach())
    model.eval()
    assert not torch.allclose(scores, losses(model, BATCH))


@pytest.mark.parametrize("asked", [None, "bf16"])
def test_the_pass_runs_in_the_precision_that_is_asked_for_or_else_in_force(asked):
    model, seen = nn.Linear(4, 3), []
    model.register_forward_hook(lambda *each: seen.append(each[-1].dtype))
    scorer = sb.scorers.Forward(precision=asked)
    scores = start(model, scorer).score(BATCH, INDICES)
    with torch.autocast("cpu", dtype=torch.float16):
        start(model, scorer).score(BATCH, INDICES)
        model(BATCH[0])
    assert not torch.is_autocast_enabled("cpu")
    own = [torch.bfloat16] * 2 if asked else [torch.float32, torch.float16]
    assert seen == [*own, torch.float16]
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(asked)):
        assert torch.equal(scores, losses(model, BATCH))
    with unhooked(), pytest.raises(sb.ConfigurationError, match="precision='fp8': write"):
        sb.scorers.Forward(precision="fp8")


def test_within_the_users_autocast_the_pass_remembers_no_weights():
    model, seen = net(), []
    model.register_forward_hook(lambda *_: seen.append(torch.is_autocast_cache_enabled()))
    running = start(model, device=torch.device("cpu"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        running.score(BATCH, INDICES)
        losses(model, BATCH)
    assert seen == [False, True]


@pytest.mark.usefixtures("lone_rank")
def test_a_wrapped_model_is_scored_without_its_wrapper():
    model = net()
    wrapped = DistributedDataParallel(model)
    wrapped.register_forward_hook(lambda *_: pytest.fail("the wrapper was run"))
    scores = start(wrapped).score(BATCH, INDICES)
    assert wrapped.training
    assert model.training
    model.eval()
    assert torch.equal(scores, losses(model, BATCH).detach())


@pytest.mark.usefixtures("lone_rank")
def test_a_wrapper_inside_the_model_broadcasts_no_buffers_and_still_owes_them(monkeypatch):
    wrapped, sent = DistributedDataParallel(net()), []
    monkeypatch.setattr(wrapped, "_sync_buffers", lambda: sent.append(torch.is_grad_enabled()))
    model = nn.Sequential(wrapped)
    start(model).score(BATCH, INDICES)
    model(BATCH[0])
    assert sent == [True]


@pytest.mark.parametrize("parts", [{}, {"model": nn.Linear(1, 1)}, {"losses": losses}])
def test_scoring_without_a_model_or_losses_is_refused(parts):
    with pytest.raises(sb.ConfigurationError, match=r"model.*none"):
        sb.scorers.Forward().start(sb.scorers.Context(8, None, **parts))


def test_losses_of_the_wrong_number_and_unasked_pairs_are_refused():
    seven, pair = (lambda found: found[1:, 0]), (lambda found: (found[:, 0], found))
    for take, said in ((seven, r"\(7,\).*batch of 8"), (pair, "got tuple")):
        with pytest.raises(sb.LossError, match=said):
            start(net(), of=lambda m, b, take=take: take(m(b[0]))).score(BATCH, INDICES)


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
