"""Advice is asked of a training that stays as it is, and every way to ask wrongly says so."""

import copy
import math
import random
from itertools import count

import numpy as np
import pytest
import torch
from fixture_doors import bits
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop.guide import _advise
from selective_backprop.guide._budget import Budget

LOSS = nn.CrossEntropyLoss()
BATCH, EXAMPLES = 4, 90


class Noisy(TensorDataset):
    """Examples whose loading draws from every stream."""

    def __getitem__(self, index):
        inputs, target = super().__getitem__(index)
        return inputs + torch.rand(()) * np.random.rand() * random.random(), target


class Stream(IterableDataset):
    def __init__(self, examples: int = EXAMPLES):
        self.examples = examples

    def __iter__(self):
        for number in range(self.examples):
            yield torch.full((3,), float(number % 7)), number % 2


class Deaf(IterableDataset):
    """Says that it has examples, and yields none."""

    def __len__(self):
        return EXAMPLES

    def __iter__(self):
        return iter(())


def pairs(kind=TensorDataset) -> TensorDataset:
    inputs = torch.randn(EXAMPLES, 3, generator=torch.Generator().manual_seed(0))
    return kind(inputs, (inputs.sum(1) > 0).long())


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)
    )


def ask(model=None, loader=None, loss_fn=LOSS, **options) -> sb.guide.Advice:
    """Ask by a clock that goes 100 seconds on at each look, whatever else the machine does.

    What is timed by itself then has minutes, so that a busy machine is no slower than the clock.
    """
    loader = DataLoader(pairs(), BATCH) if loader is None else loader
    moments = count(step=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_advise, "Budget", lambda seconds: Budget(seconds, lambda: next(moments)))
        return sb.guide.advise(model or net(), loader, loss_fn, **({"budget": 1000} | options))


@pytest.fixture(scope="module")
def asked():
    """A training that has begun, what it was before advice was asked, and the advice."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(pairs(Noisy), BATCH, shuffle=True, generator=generator)
    inputs, targets = next(iter(loader))
    LOSS(model(inputs), targets).backward()
    optimizer.step()
    model[3].eval()
    with unhooked():  # checking annotations draws from Python's stream
        before = state(model, optimizer, generator)
        advice = ask(model, loader, optimizer=optimizer, epochs=6)
        return before, state(model, optimizer, generator), advice


def state(model, optimizer, generator):
    return bits(
        {
            "model": dict(model.state_dict()),
            "modes": [module.training for module in model.modules()],
            "gradients": [parameter.grad for parameter in model.parameters()],
            "optimizer": copy.deepcopy(optimizer.state_dict()),
            "generator": generator.get_state(),
            "torch": torch.get_rng_state(),
            "numpy": repr(np.random.get_state()),
            "python": repr(random.getstate()),
        }
    )


def test_model_optimiser_loader_and_random_streams_are_as_they_were(asked):
    before, after, _ = asked
    assert before == after


def test_it_foresees_an_epoch_of_every_strategy_by_what_it_loads_scores_and_trains_on(asked):
    *_, advice = asked
    counts = {
        name: (each.loaded, each.scored, each.trained)
        for name, each in advice.forecasts.items()
        if not each.varies
    }
    third, few = EXAMPLES / 3, EXAMPLES * (1 / 3 + 2 / 9)
    expected = {
        "traditional": (EXAMPLES, 0, EXAMPLES),
        "random-scored": (EXAMPLES, EXAMPLES, third),
        "selective-backprop": (EXAMPLES, EXAMPLES, third),
        "random-backprop": (third, 0, third),
        "stale-sb": (few, third, third),
        "predicted-sb": (few, third, third),
        "recorded-sb": (third, 0, third),
    }
    assert {name: pytest.approx(counts[name]) for name in expected} == expected
    assert {"easy-skip", "infobatch"} <= set(advice.forecasts) - set(counts)


def test_what_it_found_adds_up(asked):
    *_, advice = asked
    assert sum(advice.shares.values()) == pytest.approx(1)
    assert {"load", "forward", "backward", "step"} <= set(advice.shares)
    assert advice.forecasts["traditional"].relative.median == 1.0
    assert advice.forecasts["traditional"].training == 1.0
    plain, ours = (advice.forecasts[name] for name in ("traditional", "selective-backprop"))
    assert ours.training == pytest.approx((1 + 5 * ours.relative.median) / 6)
    assert ours.seconds.median > 0
    assert plain.seconds.rounds == advice.rounds >= 1
    assert advice.config["examples"] == EXAMPLES
    assert advice.config["window"] == 3 * BATCH
    assert advice.config["optimizer"] == "Adam"
    assert (advice.traits.sample, advice.traits.classes) == (EXAMPLES, 2)
    assert advice.traits.copies == 0.0  # though each example comes in another form each time
    # Scorers that fit are timed, and what did not fit is said to be left out.
    words = " ".join([*advice.scorers, *advice.remarks, *advice.left_out])
    assert "int8" in words


def test_a_stream_is_advised_on_without_what_selects_before_loading():
    advice = ask(loader=DataLoader(Stream(), BATCH), examples=EXAMPLES)
    assert {"traditional", "selective-backprop"} <= set(advice.forecasts)
    assert not {"random-backprop", "stale-sb", "recorded-sb"} & set(advice.forecasts)


def test_the_data_looked_at_can_be_others_than_those_trained_on():
    twice = TensorDataset(*(torch.cat([part, part]) for part in pairs().tensors))
    assert ask(data=twice).traits.copies == pytest.approx(0.5)


def test_a_training_in_half_precision_is_advised_on():
    advice = ask(autocast=torch.bfloat16)
    assert {"traditional", "selective-backprop"} <= set(advice.forecasts)
    assert advice.scoring.median > 0


def test_a_loader_with_workers_is_advised_on_by_wall_seconds():
    advice = ask(loader=DataLoader(pairs(), BATCH, num_workers=1))
    assert (advice.config["workers"], advice.config["clock"]) == (1, "wall seconds")
    assert advice.forecasts["traditional"].phases["load"] > 0


def test_of_a_model_that_diverges_it_keeps_the_costs_and_says_so():
    model = net()
    advice = ask(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e30))
    assert advice.redundancy is None
    assert "the copy diverged" in advice.remarks["losses and gradients"]
    assert advice.recommendation.strategy is None
    assert "diverged" in advice.recommendation.verdict
    assert advice.forecasts["selective-backprop"].seconds.median > 0
    assert all(math.isnan(each.overlap) for each in advice.scorers.values())


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            {"model": nn.Linear(5, 2)},
            sb.ConfigurationError,
            "cannot be trained on the loader's first batch of 4 rows: RuntimeError: mat1 and",
        ),
        ({"model": nn.Flatten()}, sb.ConfigurationError, "has no parameter that requires a grad"),
        ({"loss_fn": lambda outputs, targets: outputs.sum()}, sb.LossError, "loss is a scalar"),
        ({"loss_fn": None}, sb.ConfigurationError, "scoring needs a loss function, got None"),
        ({"loader": [1, 2]}, sb.LoaderError, "a torch.utils.data.DataLoader is needed, got list"),
        (
            {"loader": DataLoader(Deaf(), BATCH)},
            sb.LoaderError,
            "the loader yielded nothing: there is no batch to measure on",
        ),
        (
            {"loader": DataLoader(Stream(), BATCH)},
            sb.ConfigurationError,
            "how many examples an epoch has; pass examples=",
        ),
        ({"budget": 0}, sb.ConfigurationError, "budget=0: a finite number above 0"),
        (
            {"budget": 1e-4},
            sb.ConfigurationError,
            r"budget=0.0001: a training step takes .* here, and the shortest answer .* give budget",
        ),
        (
            {"epochs": 0},
            sb.ConfigurationError,
            "epochs=0: a whole number of at least 1",
        ),
        ({"rate": 2}, sb.ConfigurationError, "rate"),
        (
            {"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)},
            sb.ConfigurationError,
            "moves parameters that are not the model's",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_advised_on_is_refused(wrong, error, message):
    with unhooked(), pytest.raises(error, match=message):
        ask(**wrong)


def test_a_model_that_cannot_be_copied_is_refused():
    model = net()
    model.cache = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(sb.ConfigurationError, match=r"\(Sequential\) cannot be copied with"):
        ask(model)
