"""EL2N and GraNd: against plain forms, and what they refuse before training."""

import pytest
import torch
from fixture_scores import Seeded, idle, images, in_order, make_linear, net, vectors
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


class Attention(nn.Module):
    """Reads an image's rows as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs):
        return self.head(self.layer(inputs.flatten(0, 1)).mean(1))


@given(LOGITS, st.data(), st.floats(0, 1, width=32))
def test_el2n_is_the_length_of_the_error_vector_of_classes_and_probabilities(logits, data, share):
    classes = [data.draw(st.integers(0, 2)) for _ in logits]
    for targets in (classes, [(share, 0.0, 1 - share)] * len(logits)):
        found = el2n_of(torch.tensor(logits), torch.tensor(targets))
        expected = [el2n(row, target) for row, target in zip(logits, targets, strict=True)]
        assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def gradient_norms_one_by_one(model, inputs, targets, loss_fn):
    model.eval()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    norms = []
    for row, target in zip(inputs, targets, strict=True):
        loss = loss_fn(model(row[None]), target[None]).sum()
        slopes = torch.autograd.grad(loss, trained)
        norms.append(torch.cat([slope.flatten() for slope in slopes]).norm())
    return torch.stack(norms).double()


def freeze_a_part(model):
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize("make", [net, Attention, lambda: freeze_a_part(net())])
def test_grand_is_the_norm_that_autograd_finds_one_by_one(make):
    inputs, targets = images()
    torch.manual_seed(3)
    model = make()
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    found = sb.grand_scores(
        in_order(inputs, targets), lambda: model, idle, models=1, loss_fn=loss_fn
    )
    expected = gradient_norms_one_by_one(model, inputs, targets, loss_fn)
    torch.testing.assert_close(found.scores, expected, rtol=1e-4, atol=1e-6)


def test_grand_holds_no_more_gradients_at_once_than_it_may(monkeypatch):
    seen = []
    vmap = torch.func.vmap
    monkeypatch.setattr(
        torch.func, "vmap", lambda *a, chunk_size, **k: seen.append(chunk_size) or vmap(*a, **k)
    )
    monkeypatch.setattr("selective_backprop._pruning.example_scores.GRADIENT_BYTES", 3 * 18 * 4 + 1)
    loader = in_order(*vectors(4))
    loss_fn = nn.CrossEntropyLoss()
    sb.grand_scores(loader, lambda: nn.Linear(5, 3), idle, models=1, loss_fn=loss_fn)
    assert set(seen) == {3}


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, inputs):
        return self.inner(inputs if inputs.sum().item() > 0 else -inputs)


class Silent(nn.Module):
    """A model without a trainable parameter."""

    def forward(self, inputs):
        return inputs[:, :3]


@pytest.mark.parametrize(
    ("make", "loss_fn", "error", "message"),
    [
        (Branching, nn.CrossEntropyLoss(), sb.ConfigurationError, r"vmap.*Branching.*el2n_scores"),
        (Silent, nn.CrossEntropyLoss(), sb.ConfigurationError, "Silent .*trainable"),
        (make_linear, lambda o, t: 1.0, sb.LossError, "float.*one number"),
        (make_linear, lambda o, t: torch.zeros(2), sb.LossError, r"is \(2,\)"),
    ],
)
def test_grand_refuses_before_training_what_has_no_gradient_per_example(
    make, loss_fn, error, message
):
    whole = Seeded()
    with pytest.raises(error, match=message):
        sb.grand_scores(in_order(*vectors()), make, whole.train, loss_fn=loss_fn)
    assert whole.seeds == []


def test_memory_that_is_out_is_not_mistaken_for_a_model_that_cannot_be_vectorised():
    class Greedy(nn.Linear):
        def forward(self, inputs):
            raise torch.OutOfMemoryError("CUDA out of memory")

    loader = in_order(*vectors())
    with pytest.raises(torch.OutOfMemoryError):
        sb.grand_scores(loader, lambda: Greedy(5, 3), idle, loss_fn=nn.CrossEntropyLoss())


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
