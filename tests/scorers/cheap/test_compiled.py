"""Scoring with a compiled model, beside one that is not."""

import copy
from contextlib import nullcontext

import pytest
import torch
from fixture_doors import fixture_data, fresh_net, same_tensors
from torch import nn
from torch.nn import functional
from unhooked import unhooked

import selective_backprop as sb

BATCH = fixture_data().tensors
COMPILED = sb.scorers.Compiled(sb.scorers.Forward(), backend="eager", check=None)


def losses(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def begin(scorer: sb.scorers.AbstractScorer, model: nn.Module | None) -> sb.scorers.RunningScorer:
    return scorer.start(sb.scorers.Context(8, 16, model, losses))


def exact_scores(model: nn.Module, batch=BATCH) -> list[float]:
    return begin(sb.scorers.Forward(), model).score(batch, None).tolist()


class Watched(nn.Module):
    """A model that notes whether it is being compiled, and moves a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = fresh_net()
        self.register_buffer("calls", torch.zeros(()))
        self.fails = False

    def forward(self, inputs):
        self.calls += 1
        outputs = self.inner(inputs)
        if self.fails:
            raise ArithmeticError("the model failed")
        return outputs + torch.compiler.is_compiling()


@pytest.fixture(autouse=True)
def forget_what_was_compiled():
    torch.compiler.reset()


def test_scores_are_the_exact_ones_also_as_the_model_learns():
    model = fresh_net()
    running = begin(
        sb.scorers.Compiled(sb.scorers.Forward(), backend="eager", check=sb.scorers.Check(2)), model
    )
    for _ in range(3):
        assert running.score(BATCH, None).tolist() == exact_scores(model)
        losses(model, BATCH).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= parameter.grad
    assert running.agreement.overlap == pytest.approx(1)


def test_the_pass_is_compiled_and_neither_training_nor_the_check_is():
    def told(model, batch):  # compiled, this model adds 1
        return model(batch[0])[:, 0] - plain.inner(batch[0])[:, 0]

    plain = Watched().eval()
    context = sb.scorers.Context(8, 16, plain, told)
    running = sb.scorers.Compiled(sb.scorers.Forward(), backend="eager").start(context)
    assert running.score(BATCH, None).tolist() == pytest.approx([1.0] * 40, abs=1e-6)
    assert running.score_exactly(BATCH, None).tolist() == pytest.approx([0.0] * 40, abs=1e-6)
    assert told(plain, BATCH).tolist() == pytest.approx([0.0] * 40, abs=1e-6)


def test_it_is_compiled_once_for_batches_of_one_size():
    model, counted = fresh_net(), torch._dynamo.utils.counters["stats"]
    running = begin(COMPILED, model)
    before = counted["unique_graphs"]
    for _ in range(4):
        running.score(BATCH, None)
        model(BATCH[0])
    assert counted["unique_graphs"] == before + 1


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_batches_of_any_size_are_scored(dynamic):
    model = fresh_net()
    running = begin(sb.scorers.Compiled(sb.scorers.Forward(), None, dynamic, "eager", None), model)
    for rows in (40, 7, 12):
        batch = tuple(column[:rows] for column in BATCH)
        assert running.score(batch, None).tolist() == exact_scores(model, batch)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails):
    model = Watched()
    model.inner.layers[1].eval()
    losses(model, BATCH).mean().backward()
    model.fails = fails
    state = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    identities = [id(tensor) for tensor in model.state_dict(keep_vars=True).values()]
    stream = torch.get_rng_state()
    running = begin(COMPILED, model)
    for _ in range(3):
        with pytest.raises(ArithmeticError) if fails else nullcontext():
            running.score(BATCH, None)
    assert same_tensors(model.state_dict(), state)
    assert [module.training for module in model.modules()] == modes
    assert [id(tensor) for tensor in model.state_dict(keep_vars=True).values()] == identities
    assert torch.equal(torch.get_rng_state(), stream)


def test_a_model_that_is_compiled_already_is_compiled_anew_for_scoring():
    model = fresh_net()
    running = begin(COMPILED, torch.compile(model, backend="eager"))
    assert running.score(BATCH, None).tolist() == exact_scores(model)


@pytest.mark.parametrize(
    "scorer",
    [
        sb.scorers.Compiled(
            sb.scorers.Synced(sb.scorers.Forward(), 2), backend="eager", check=None
        ),
        sb.scorers.Synced(
            sb.scorers.Compiled(sb.scorers.Forward(), backend="eager"), 2, check=None
        ),
    ],
)
def test_with_a_copy_it_goes_in_either_order(scorer):
    model = fresh_net()
    running = begin(scorer, model)
    before = exact_scores(model)
    assert running.score(BATCH, None).tolist() == before
    with torch.no_grad():
        model.head.weight.mul_(2)
    assert running.score(BATCH, None).tolist() == before
    assert running.score(BATCH, None).tolist() == exact_scores(model)
    assert running.score_exactly(BATCH, None).tolist() == exact_scores(model)


@pytest.mark.parametrize(
    ("options", "found"),
    [({"mode": "fastest"}, "Unrecognized mode"), ({"backend": "fastest"}, "Invalid backend")],
)
def test_what_torch_does_not_know_is_refused_before_training(options, found):
    with pytest.raises(sb.ConfigurationError, match=f"cannot be compiled: {found}"):
        begin(sb.scorers.Compiled(sb.scorers.Forward(), **options), fresh_net())


def test_a_mode_that_would_be_ignored_is_refused():
    with unhooked(), pytest.raises(sb.ConfigurationError, match="would be ignored"):
        sb.scorers.Compiled(sb.scorers.Forward(), "max-autotune", backend="eager")


def test_a_scorer_with_a_model_of_its_own_is_refused():
    proxy = sb.scorers.Proxy(fresh_net, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    with unhooked(), pytest.raises(sb.ConfigurationError, match="a model of its own"):
        sb.scorers.Compiled(proxy)


def test_without_a_model_there_is_nothing_to_compile():
    with pytest.raises(sb.ConfigurationError, match="there is none"):
        begin(COMPILED, None)
