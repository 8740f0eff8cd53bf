"""Laws that every scorer keeps. A new one needs an entry in `SCORERS`, and nothing else."""

import random
from contextlib import nullcontext
from importlib.util import find_spec

import fixture_extend
import numpy as np
import pytest
import torch
from discovery import check_specification, final_classes, public_classes
from fixture_loaders import streams
from fixture_pipelined import Ahead
from torch import nn
from torch.nn import functional

import selective_backprop as sb
from reproductions.rules.divbs import LastLayerGradients
from reproductions.rules.ies import Unmastered
from reproductions.rules.rs2 import LeastVisited
from reproductions.rules.seta import InWindow
from reproductions.rules.srd import Shrinking
from selective_backprop.scorers._abstract import start_scorer
from selective_backprop.strategies._auto.rule import Unlearned


def make_small_model() -> nn.Module:
    model = Restless()
    nn.init.normal_(model.head.weight)  # as models are made: from the global stream
    return model


def make_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


REFERENCE = sb.scorers.ReferenceLosses(torch.linspace(0, 1, 1000))
SCORERS = [
    sb.scorers.Excess(REFERENCE, sb.scorers.Forward()),
    sb.scorers.Excess(REFERENCE, sb.scorers.Forward("error-norm")),
    sb.scorers.Excess(None, sb.scorers.Recorded()),
    sb.scorers.Excess(None, sb.scorers.Recorded(rescore=sb.scorers.Forward())),
    sb.scorers.Forward(),
    sb.scorers.Forward(training=True),
    sb.scorers.Forward("error-norm"),
    sb.scorers.Forward(precision="bf16"),
    *([sb.experimental.Quantized(sb.scorers.Forward(), 2)] if find_spec("torchao") else []),
    # on a CPU, as `Pipelined` runs on a GPU
    Ahead(sb.scorers.Forward(), 4, check=sb.experimental.Check(1)),
    Ahead(sb.scorers.Forward(training=True), 1, ahead=1),
    sb.scorers.Predicted(sb.scorers.Forward()),
    sb.scorers.Predicted(sb.scorers.Forward("error-norm"), epochs=2),
    sb.scorers.Proxy(make_small_model, make_optimizer),
    sb.scorers.Recorded(),
    sb.scorers.Recorded(max_age=2, rescore=sb.scorers.Forward()),
    Unlearned(),
    Unlearned(trim=True),
    sb.scorers.Stale(sb.scorers.Forward()),
    sb.scorers.Stale(sb.scorers.Forward(), 3, True),
]
PIPELINED = sb.experimental.Pipelined(sb.scorers.Forward(), 4)
MEMORY = [Unmastered(1e-3), LeastVisited(), InWindow(0.9, 5, 4), Shrinking(0.99)]
RULES = [*MEMORY, LastLayerGradients()]
ALL = SCORERS + fixture_extend.SCORERS + RULES
every_scorer = pytest.mark.parametrize(
    "scorer", [each for each in ALL if each.needs.passes or each.needs.rescores], ids=repr
)


class Restless(nn.Module):
    """A model with everything that a scorer could disturb."""

    fails = False

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.stem = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.frozen = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, 3)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(8))
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)
        self.frozen.eval()

    def forward(self, inputs):
        hidden = self.drop(self.frozen(self.norm(self.stem(inputs))))
        self.passes += 1  # in place
        self.mean = 0.9 * self.mean + 0.1 * hidden.detach().mean(0)  # bound anew
        noise = torch.rand(()) * 1e-3 + float(np.random.rand()) * 1e-3 + random.random() * 1e-3
        if self.fails:
            raise ArithmeticError("the model failed")
        return self.head(hidden) + noise


def batch() -> dict[str, torch.Tensor]:
    inputs = torch.linspace(-1, 1, 40).reshape(10, 4).sin()
    images = torch.linspace(-1, 1, 160).reshape(10, 1, 4, 4).cos()
    return {"inputs": inputs, "images": images, "targets": torch.arange(10) % 3}


INDICES = torch.arange(100, 110)


def outputs(model, batch):
    return model(batch["inputs"] + batch["images"].amax((1, 3))[:, :1]), batch["targets"]


def losses(model, batch):
    return functional.cross_entropy(*outputs(model, batch), reduction="none")


def begin(scorer: sb.scorers.AbstractScorer, model: nn.Module) -> sb.scorers.RunningScorer:
    own = {"device": torch.device("cpu"), "examples": 1000}
    return start_scorer(scorer, sb.scorers.Context(5, 10, model, losses, outputs, **own))


def score(
    running: sb.scorers.RunningScorer, indices: torch.Tensor | None = INDICES
) -> torch.Tensor:
    found = running.score(batch(), indices)
    return found[0] if isinstance(found, tuple) else found  # or with features


def snapshot(model: nn.Module) -> dict[str, object]:
    """All that scoring must leave as it was."""
    return {
        "modes": [module.training for module in model.modules()],
        "tensors": {name: value.tolist() for name, value in model.state_dict().items()},
        "identities": {name: id(value) for name, value in model.state_dict(keep_vars=True).items()},
        "gradients": [p.grad if p.grad is None else p.grad.tolist() for p in model.parameters()],
        "asks": [parameter.requires_grad for parameter in model.parameters()],
        "streams": streams(),
        "autograd": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
    }


def test_every_scorer_is_public_and_listed_here():
    public = public_classes(sb.scorers.AbstractScorer) | {Unlearned}  # of `auto` alone
    assert final_classes(sb.scorers.AbstractScorer) == public
    listed = {*map(type, [*SCORERS, PIPELINED]), sb.experimental.Quantized}
    assert public == listed - {Ahead}


@pytest.mark.parametrize("scorer", [*ALL, PIPELINED], ids=repr)
def test_a_specification_is_final_frozen_and_compares_by_value(scorer):
    check_specification(scorer, sb.scorers.AbstractScorer)


@every_scorer
@pytest.mark.parametrize("indices", [INDICES, None])
def test_each_candidate_gets_one_finite_score_without_history(scorer, indices):
    if isinstance(scorer, sb.scorers.Excess) and indices is None:
        pytest.skip("compares with a loss of the same example")
    scores = score(begin(scorer, Restless()), indices)
    assert (scores.shape, scores.device) == ((10,), torch.device("cpu"))
    assert scores.is_floating_point()
    assert bool(scores.isfinite().all())
    assert not scores.requires_grad


@every_scorer
def test_scores_tell_candidates_apart_and_repeat(scorer):
    running = begin(scorer, Restless())
    first = score(running)
    assert len(first.unique()) > 5
    assert score(running).tolist() == first.tolist()


@every_scorer
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_the_model_and_the_world_are_left_as_they_were(scorer, fails, autocast, monkeypatch):
    model = Restless()
    losses(model, batch()).mean().backward()
    monkeypatch.setattr(Restless, "fails", fails)
    with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else nullcontext():
        running = begin(scorer, model)
        before = snapshot(model)
        for _ in range(3):
            with pytest.raises(ArithmeticError) if fails else nullcontext():
                score(running)
        assert snapshot(model) == before


@every_scorer
def test_the_batch_is_left_as_it_was(scorer):
    candidates = batch()
    candidates["inputs"].requires_grad_(True)
    begin(scorer, Restless()).score(candidates, INDICES)
    assert list(candidates) == list(batch())
    for name, value in batch().items():
        assert candidates[name].tolist() == value.tolist()
        assert candidates[name].grad is None


@every_scorer
def test_a_scorer_goes_on_where_its_state_was_taken(scorer, tmp_path):
    model = Restless()
    running = begin(scorer, model)
    for _ in range(3):
        score(running)
    torch.save(running.state_dict(), tmp_path / "state")
    resumed = begin(scorer, model)
    resumed.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert score(resumed).tolist() == score(running).tolist()
