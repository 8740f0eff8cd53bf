"""The selection pass: the model's own losses, and a model that never noticed."""

import copy

import pytest
import torch
from fixture_loaders import cross_entropies as losses
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from unhooked import unhooked

import selective_backprop as sb

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


class Precision(nn.Module):
    """A model that remembers the type of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.seen = []

    def forward(self, inputs):
        outputs = self.layer(inputs)
        self.seen.append(outputs.dtype)
        return outputs


def test_the_pass_runs_in_the_precision_in_force():
    model = Precision()
    start(model).score(BATCH, INDICES)
    with torch.autocast("cpu", dtype=torch.float16):
        start(model).score(BATCH, INDICES)
        model(BATCH[0])
    assert not torch.is_autocast_enabled("cpu")
    assert model.seen == [torch.float32, torch.float16, torch.float16]


def test_the_pass_runs_in_the_precision_that_is_asked_for_and_no_other():
    model = Precision()
    scorer = sb.scorers.Forward(precision="bf16")
    scores = start(model, scorer).score(BATCH, INDICES)
    with torch.autocast("cpu", dtype=torch.float16):
        start(model, scorer).score(BATCH, INDICES)
        model(BATCH[0])
    assert model.seen == [torch.bfloat16, torch.bfloat16, torch.float16]
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
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


def test_losses_of_the_wrong_number_are_refused_where_the_number_is_known():
    running = start(net(), of=lambda model, batch: model(batch[0])[1:, 0])
    with pytest.raises(sb.LossError, match=r"\(7,\).*batch of 8"):
        running.score(BATCH, INDICES)
