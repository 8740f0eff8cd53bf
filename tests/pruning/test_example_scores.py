"""EL2N: against a plain form, and what it refuses before training."""

import pytest
import torch
from fixture_scores import Seeded, idle, in_order
from hypothesis import given
from hypothesis import strategies as st
from reference import el2n
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
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
