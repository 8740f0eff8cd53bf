"""EL2N over an ensemble: against a plain form, what it charges and refuses, and without a trace."""

import random
import re
import statistics

import numpy as np
import pytest
import torch
from fixture_loaders import streams
from fixture_scores import Seeded, idle, in_order, make_linear, mappings, vectors
from hypothesis import given
from hypothesis import strategies as st
from reference import el2n
from torch import nn
from torch.nn import functional
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

LOGIT = st.floats(-20, 20, width=32)
LOGITS = st.lists(st.tuples(LOGIT, LOGIT, LOGIT), min_size=1, max_size=12)


def el2n_of(logits, targets, **options):
    """Score logits as they are: the model is none."""
    loader = in_order(logits, targets)
    return sb.el2n_scores(loader, nn.Identity, idle, models=1, **options).scores


@given(LOGITS, st.data(), st.floats(0, 1, width=32))
def test_el2n_is_the_length_of_the_error_vector_of_classes_and_probabilities(logits, data, share):
    classes = [data.draw(st.integers(0, 2)) for _ in logits]
    for targets in (classes, [(share, 0.0, 1 - share)] * len(logits)):
        found = el2n_of(torch.tensor(logits), torch.tensor(targets))
        expected = [el2n(row, target) for row, target in zip(logits, targets, strict=True)]
        assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 0, 0]), "example 3 .*nan .*none"),
        (torch.randn(6, 3), torch.tensor([0, -100, 2, 1, 0, 0]), "example 1 .*nan .*1"),
        (torch.full((6, 3), torch.nan), torch.zeros(6, dtype=torch.int64), "not finite"),
        (torch.randn(6, 1), torch.zeros(6, dtype=torch.int64), "2 classes"),
        (torch.randn(6, 3, 2), torch.zeros(6, dtype=torch.int64), r"got \(4, 3, 2\)|got \(6, 3, 2"),
        (torch.randn(6, 3), torch.zeros(6), "class numbers"),
    ],
)
def test_el2n_refuses_before_training_what_has_no_error_vector(outputs, targets, message):
    whole = Seeded()
    with unhooked(), pytest.raises(sb.LossError, match=message):
        sb.el2n_scores(in_order(outputs, targets, batch_size=6), nn.Identity, whole.train)
    assert whole.seeds == []


def test_losses_of_all_examples_are_those_of_the_model_in_eval_mode_which_stays_as_it_was():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    inputs, targets = torch.randn(40, 4), torch.randint(3, (40,))
    before = [value.clone() for value in model.state_dict().values()]
    loader, loss_fn = in_order(inputs, targets), nn.CrossEntropyLoss()
    found = sb.example_losses(loader, model, loss_fn)
    assert all(map(torch.equal, before, model.state_dict().values()))
    assert model.training
    wanted = functional.cross_entropy(model.eval()(inputs), targets, reduction="none")
    torch.testing.assert_close(found, wanted.detach())
    one = sb.example_losses(loader, model, losses=lambda net, batch: net(batch[0]).sum(1))
    torch.testing.assert_close(one, model(inputs).sum(1).detach())
    with pytest.raises(sb.ConfigurationError, match="loss function"):
        sb.example_losses(loader, model)


def test_a_collate_function_that_sorts_examples_is_refused():
    def by_size(examples):
        examples = sorted(examples, key=lambda example: -float(example[0].sum()))
        return tuple(map(torch.stack, zip(*examples, strict=True)))

    data = TensorDataset(torch.randn(8, 3), torch.arange(8) % 3)
    loader = DataLoader(data, 4, collate_fn=by_size)
    with pytest.raises(sb.BatchError, match="changes the order of examples"):
        sb.el2n_scores(loader, nn.Identity, idle, models=1)


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
