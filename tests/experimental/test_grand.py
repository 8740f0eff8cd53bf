"""GraNd: against autograd, example by example, and what it refuses before training."""

import pytest
import torch
from fixture_scores import Seeded, idle, images, in_order, make_linear, mappings, net, vectors
from torch import nn

import selective_backprop as sb


class Attention(nn.Module):
    """Reads an image's rows as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs):
        return self.head(self.layer(inputs.flatten(0, 1)).mean(1))


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
    found = sb.experimental.grand_scores(
        in_order(inputs, targets), lambda: model, idle, models=1, loss_fn=loss_fn
    )
    expected = gradient_norms_one_by_one(model, inputs, targets, loss_fn)
    torch.testing.assert_close(found.scores, expected, rtol=1e-4, atol=1e-6)


def test_grand_takes_any_batch_where_outputs_says_how_and_charges_a_whole_epoch():
    options = {"models": 1, "loss_fn": nn.CrossEntropyLoss()}
    model, plain = make_linear(), in_order(*vectors())
    outputs = lambda model, batch: (model(batch["x"]), batch["y"])  # noqa: E731
    found, expected = (
        sb.experimental.grand_scores(loader, lambda: model, lambda *_: 1.0, **options, **more)
        for loader, more in ((mappings(), {"outputs": outputs}), (plain, {}))
    )
    torch.testing.assert_close(found.scores, expected.scores)
    assert (found.cost, found.source) == (2.0, "GraNd, 1 model, 1 epochs of training")


def test_grand_holds_no_more_gradients_at_once_than_it_may(monkeypatch):
    seen = []
    vmap = torch.func.vmap
    monkeypatch.setattr(
        torch.func, "vmap", lambda *a, chunk_size, **k: seen.append(chunk_size) or vmap(*a, **k)
    )
    monkeypatch.setattr("selective_backprop.experimental._grand.GRADIENT_BYTES", 3 * 18 * 4 + 1)
    loader = in_order(*vectors(4))
    loss_fn = nn.CrossEntropyLoss()
    sb.experimental.grand_scores(loader, lambda: nn.Linear(5, 3), idle, models=1, loss_fn=loss_fn)
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
        sb.experimental.grand_scores(in_order(*vectors()), make, whole.train, loss_fn=loss_fn)
    assert whole.seeds == []


def test_memory_that_is_out_is_not_mistaken_for_a_model_that_cannot_be_vectorised():
    class Greedy(nn.Linear):
        def forward(self, inputs):
            raise torch.OutOfMemoryError("CUDA out of memory")

    loader = in_order(*vectors())
    with pytest.raises(torch.OutOfMemoryError):
        sb.experimental.grand_scores(
            loader, lambda: Greedy(5, 3), idle, loss_fn=nn.CrossEntropyLoss()
        )
