"""Scores over an ensemble: averaged, charged, from loaders that go in order, without a trace."""

import random
import re
import statistics

import numpy as np
import pytest
import torch
from fixture_loaders import streams
from fixture_scores import Seeded, idle, in_order, make_linear, mappings, vectors
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
)
from unhooked import unhooked

import selective_backprop as sb


def test_an_ensemble_gives_the_mean_of_its_models():
    loader = in_order(*vectors())
    whole = Seeded()
    found = sb.el2n_scores(loader, make_linear, whole.train, models=3)
    single = [
        sb.el2n_scores(loader, make_linear, Seeded(first).train, models=1).scores.tolist()
        for first in range(3)
    ]
    each = list(zip(*single, strict=True))
    assert whole.seeds == [0, 1, 2]
    assert found.scores.tolist() == pytest.approx([statistics.fmean(one) for one in each])


def costs(returns, models=3, **options):
    loader = in_order(*vectors())
    train = Seeded(returns=returns).train
    return sb.el2n_scores(loader, make_linear, train, models=models, **options)


def test_training_of_known_cost_and_scoring_passes_are_charged_and_other_costs_refused():
    for found, cost, source in (
        (costs(lambda seed: 10), 3 * 10 + 3 / 3, "EL2N, 3 models.* 30 epochs"),
        (costs(lambda seed: 6.0 if seed else None), 1 + 2 * 6.0, "EL2N, 3 models.*not charged"),
    ):
        assert found.cost == pytest.approx(cost)
        assert re.search(source, found.source)
    for spent in ("ten", -1.0):
        with unhooked(), pytest.raises(sb.ConfigurationError, match=r"train\(\)=.* None"):
            costs(lambda seed, spent=spent: spent)


class Augmented(Dataset):
    """Examples of which the last is augmented each time it is loaded."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.full((5,), float(index)) + (index == 9) * random.random(), index % 3


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(*vectors(), strict=True)


class Grouped(BatchSampler):
    pass


DATA = TensorDataset(*vectors())


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(DATA, 4, shuffle=True), "sampler=RandomSampler"),
        (DataLoader(DATA, 4, drop_last=True), "drop_last=True"),
        (DataLoader(DATA, batch_size=None), "batch_sampler=NoneType"),
        (DataLoader(Stream(), 4), "dataset=Stream"),
        (DataLoader(DATA, 4, sampler=SequentialSampler(range(5))), "5 of 11"),
        (
            DataLoader(DATA, batch_sampler=Grouped(SequentialSampler(DATA), 4, False)),
            "batch_sampler=Grouped",
        ),
        (DataLoader(Augmented(), 4), "first 10 .*augmentation"),
        ([1, 2], r"utils\.data\.DataLoader is needed"),
    ],
)
def test_a_loader_that_shuffles_drops_or_augments_is_refused_before_training(loader, message):
    whole = Seeded()
    with pytest.raises(sb.LoaderError, match=message):
        sb.el2n_scores(loader, make_linear, whole.train)
    assert whole.seeds == []


def test_missing_values_that_stay_missing_are_no_augmentation():
    inputs, targets = vectors()
    inputs[2, 2] = torch.nan
    outputs = lambda model, batch: (model(batch[0].nan_to_num()), batch[1])  # noqa: E731
    loader = in_order(inputs, targets)
    assert sb.el2n_scores(loader, make_linear, idle, models=1, outputs=outputs).cost == 1 / 3


def test_any_batch_can_be_scored_where_outputs_says_how():
    model = make_linear()
    outputs = lambda model, batch: (model(batch["x"]), batch["y"])  # noqa: E731
    found = sb.el2n_scores(mappings(), lambda: model, idle, models=1, outputs=outputs)
    expected = sb.el2n_scores(in_order(*vectors()), lambda: model, idle, models=1)
    torch.testing.assert_close(found.scores, expected.scores)


class Restless(nn.Module):
    """A model with every mode, moving buffers, and noise from each random stream."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3), nn.Dropout())
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        noise = torch.rand(()) + float(np.random.rand()) + random.random()
        return self.inner(inputs) + noise


def test_scoring_leaves_random_streams_modes_and_buffers_as_they_were():
    models = [Restless(), Restless()]
    waiting = iter(models)
    generator = torch.Generator()
    loader = DataLoader(DATA, batch_size=4, generator=generator)
    before = streams(), generator.get_state().tolist()
    with unhooked():  # the annotation checks draw from Python's stream
        sb.el2n_scores(loader, lambda: next(waiting), idle, models=2)
    assert (streams(), generator.get_state().tolist()) == before
    for model in models:
        assert all(module.training for module in model.modules())
        assert model.calls == 0
        assert model.inner[1].num_batches_tracked == 0


def test_a_batch_that_is_no_pair_is_refused_before_training():
    whole = Seeded()
    with pytest.raises(sb.LossError, match=r"dict.* outputs="):
        sb.el2n_scores(mappings(), make_linear, whole.train)
    assert whole.seeds == []


def test_one_score_too_few_is_refused():
    def all_but_one(model, batch):
        return model(batch[0])[1:], batch[1][1:]

    with pytest.raises(sb.LossError, match=r"EL2N .*\(3,\).*batch of 4"):
        sb.el2n_scores(in_order(*vectors()), make_linear, idle, outputs=all_but_one)


def test_a_model_that_training_breaks_is_refused_with_an_example_of_it():
    def diverge(model, seed):
        with torch.no_grad():
            model.weight.fill_(torch.inf)

    with pytest.raises(sb.LossError, match=r"example 0 .*nan.*11 .*11"):
        sb.el2n_scores(in_order(*vectors()), make_linear, diverge)


def test_a_model_whose_shapes_settle_in_training_is_not_asked_before():
    def train(model, seed):
        model(vectors()[0])

    found = sb.el2n_scores(in_order(*vectors()), lambda: nn.LazyLinear(3), train, models=2)
    assert found.scores.shape == (11,)


MODEL = make_linear()


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (MODEL, {}, "make_model .*lambda.*same Linear"),
        (lambda: MODEL, {"models": 2}, "the same Linear"),
        (lambda: make_linear, {}, "returns a function"),
    ],
)
def test_what_makes_no_new_models_is_refused(make, options, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.el2n_scores(in_order(*vectors()), make, idle, **options)
