"""Scores over an ensemble: averaged, charged, from loaders that go in order, without a trace."""

import random
import re
import statistics

import numpy as np
import pytest
import torch
from fixture_loaders import streams
from fixture_scores import BOTH, Seeded, idle, in_order, make_linear, mappings, vectors
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)
from unhooked import unhooked

import selective_backprop as sb


@BOTH
def test_an_ensemble_gives_the_mean_and_the_spread_of_its_models(scores_of):
    loader = in_order(*vectors())
    whole = Seeded()
    found = scores_of(loader, make_linear, whole.train, models=3)
    single = [
        scores_of(loader, make_linear, Seeded(first).train, models=1).scores.tolist()
        for first in range(3)
    ]
    each = list(zip(*single, strict=True))
    assert whole.seeds == [0, 1, 2]
    assert found.scores.tolist() == pytest.approx([statistics.fmean(one) for one in each])
    assert found.spread.tolist() == pytest.approx([statistics.stdev(one) for one in each])
    alone = scores_of(loader, make_linear, idle, models=1)
    assert alone.spread.tolist() == [0.0] * 11


def costs(returns, models=3, scores_of=sb.el2n_scores, **options):
    loader = in_order(*vectors())
    train = Seeded(returns=returns).train
    return scores_of(loader, make_linear, train, models=models, **options)


def test_training_and_scoring_passes_are_charged():
    found = costs(lambda seed: 10)
    assert found.cost == pytest.approx(3 * 10 + 3 / 3)
    assert re.search("EL2N, 3 models.* 10 epochs", found.source)
    grand = costs(lambda seed: 1.0, 1, sb.grand_scores, loss_fn=nn.CrossEntropyLoss())
    assert grand.cost == pytest.approx(1 + 1)
    assert re.search("GraNd, 1 model, 1 epoch$", grand.source)
    assert re.search(r"0\.5 epochs on average", costs(lambda seed: seed / 2).source)


@pytest.mark.parametrize("returns", [lambda seed: None, lambda seed: 6.0 if seed else None])
def test_training_that_says_no_cost_is_left_out_and_that_is_said(returns):
    found = costs(returns)
    assert re.search("EL2N, 3 models.*not charged", found.source)
    assert found.cost == pytest.approx(1 + sum(returns(seed) or 0 for seed in range(3)))


@pytest.mark.parametrize("spent", ["ten", -1.0, float("nan"), [1]])
def test_a_cost_that_is_no_number_of_epochs_is_refused(spent):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=r"train\(\)=.* None"):
        costs(lambda seed: spent)


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


@BOTH
@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(DATA, 4, shuffle=True), r"RandomSampler \(shuffle=True\)"),
        (DataLoader(DATA, 4, sampler=RandomSampler(DATA)), "has RandomSampler"),
        (DataLoader(DATA, 4, drop_last=True), "has drop_last=True"),
        (DataLoader(DATA, batch_size=None), "has batch_size=None"),
        (DataLoader(Stream(), 4), r"\(Stream\)"),
        (DataLoader(DATA, 4, sampler=SequentialSampler(range(5))), "5 examples"),
        (
            DataLoader(DATA, batch_sampler=Grouped(SequentialSampler(DATA), 4, False)),
            "has batch_sampler=Grouped",
        ),
        (DataLoader(Augmented(), 4), "first 10 .*augmentation"),
        ([1, 2], r"utils\.data\.DataLoader is needed"),
    ],
)
def test_a_loader_that_shuffles_drops_or_augments_is_refused_before_training(
    scores_of, loader, message
):
    whole = Seeded()
    with pytest.raises(sb.LoaderError, match=message):
        scores_of(loader, make_linear, whole.train)
    assert whole.seeds == []


def test_missing_values_that_stay_missing_are_no_augmentation():
    inputs = vectors()[0]
    inputs[2, 2] = torch.nan
    loader = in_order(inputs, vectors()[1])
    outputs = sb.el2n_scores(
        loader,
        make_linear,
        idle,
        models=1,
        outputs=lambda model, batch: (model(batch[0].nan_to_num()), batch[1]),
    )
    assert outputs.scores.isfinite().all()


@BOTH
def test_any_batch_can_be_scored_where_outputs_says_how(scores_of):
    torch.manual_seed(0)
    model = make_linear()
    found = scores_of(
        mappings(),
        lambda: model,
        idle,
        models=1,
        outputs=lambda model, batch: (model(batch["x"]), batch["y"]),
    )
    expected = scores_of(in_order(*vectors()), lambda: model, idle, models=1)
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


def test_models_are_asked_after_their_training():
    def train(model, seed):
        with torch.no_grad():
            model.weight.zero_()
            model.bias.copy_(torch.tensor([100.0, 0.0, 0.0]))

    inputs, targets = vectors()
    found = sb.el2n_scores(in_order(inputs, targets), make_linear, train, models=2)
    expected = torch.where(targets == 0, 0.0, 2**0.5).double()
    torch.testing.assert_close(found.scores, expected, rtol=1e-6, atol=1e-12)


@BOTH
def test_what_is_no_pair_is_refused_before_training(scores_of):
    whole = Seeded()
    with pytest.raises(sb.LossError, match=r"dict.* outputs="):
        scores_of(mappings(), make_linear, whole.train)
    assert whole.seeds == []


def test_one_row_too_few_is_refused():
    with pytest.raises(sb.LossError, match=r"EL2N .*\(3,\).*batch of 4"):
        sb.el2n_scores(
            in_order(*vectors()),
            make_linear,
            idle,
            outputs=lambda model, batch: (model(batch[0])[1:], batch[1][1:]),
        )


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
        (MODEL, {}, r"make_model .*\(Linear\).*lambda"),
        (lambda: MODEL, {"models": 2}, "returned before"),
        (lambda: make_linear, {}, "make_model returned function"),
        (make_linear, {"models": 0}, "models=0"),
        (make_linear, {"models": 1.5}, "models=1.5"),
    ],
)
def test_what_makes_no_new_models_is_refused(make, options, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.el2n_scores(in_order(*vectors()), make, idle, **options)
