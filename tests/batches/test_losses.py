"""One loss per example, from whatever loss the user has, and nothing of the user's changed."""

import functools
from dataclasses import make_dataclass

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop._batches.losses import ADVICE, ExampleLosses, check_losses, find_losses

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.0, 3.0], [-2.0, 1.0, 1.0], [0.3, 0.2, 0.1]])
TARGETS = torch.tensor([0, 1, 2, 2])
CLASS_WEIGHTS = [0.2, 3.0, 1.0]


class Echo(nn.Module):
    """A model that is sure of itself."""

    def forward(self, inputs):
        return inputs


def losses_of(loss_fn, outputs=LOGITS, targets=TARGETS):
    return ExampleLosses(loss_fn)(Echo(), (outputs, targets))


def plain(**options):
    return [
        reference.cross_entropy(logits, target, **options)
        for logits, target in zip(LOGITS.tolist(), TARGETS.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    "loss_fn",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(reduction="none"),
        functional.cross_entropy,
        functools.partial(functional.cross_entropy, reduction="sum"),
        functools.partial(functional.cross_entropy, ignore_index=-1),
        torch.compile(nn.CrossEntropyLoss(), backend="eager"),
        torch.compile(functional.cross_entropy, backend="eager"),
        lambda outputs, targets, reduction="mean": functional.cross_entropy(
            outputs, targets, reduction=reduction
        ),
        lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none"),
    ],
)
def test_a_loss_with_a_reduction_is_asked_for_none(loss_fn):
    assert losses_of(loss_fn).tolist() == pytest.approx(plain(), abs=1e-6)


def test_label_smoothing_and_class_weights_are_the_users():
    options = {"weight": torch.tensor(CLASS_WEIGHTS), "label_smoothing": 0.1}
    partial = functools.partial(functional.cross_entropy, reduction="sum", **options)
    for loss_fn in (nn.CrossEntropyLoss(**options), partial):
        expected = plain(weights=CLASS_WEIGHTS, smoothing=0.1)
        assert losses_of(loss_fn).tolist() == pytest.approx(expected, abs=1e-6)
    assert partial.keywords["reduction"] == "sum"


@pytest.mark.parametrize(
    "make", [lambda loss_fn: loss_fn, functools.partial(torch.compile, backend="eager")]
)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_users_own_loss_goes_on_reducing(make, reduction):
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor(CLASS_WEIGHTS), reduction=reduction)
    state = {name: value for name, value in vars(loss_fn).items() if name != "_buffers"}
    wrapped = make(loss_fn)
    losses_of(wrapped)
    assert wrapped.reduction == loss_fn.reduction == reduction
    assert {name: vars(loss_fn)[name] for name in state} == state
    assert loss_fn(LOGITS, TARGETS).ndim == 0


def test_a_thread_that_evaluates_while_another_scores_gets_a_reduced_loss():
    seen = []

    class Watched(nn.CrossEntropyLoss):
        def forward(self, outputs, targets):
            seen.append(loss_fn.reduction)  # as another thread would find it
            return super().forward(outputs, targets)

    loss_fn = Watched()
    with torch.no_grad():
        losses_of(loss_fn)
    losses_of(loss_fn)
    assert seen == ["mean", "mean"]


class Around:
    """Has the attributes of another loss."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __call__(self, outputs, targets):
        return self.inner(outputs, targets)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_loss_that_cannot_be_changed_is_asked_for_none_or_refused():
    def call(self, outputs, targets):
        return functional.cross_entropy(outputs, targets, reduction=self.reduction)

    fields, methods = [("reduction", str, "mean")], {"__call__": call}
    for slots in (False, True):
        frozen = make_dataclass("Loss", fields, namespace=methods, frozen=True, slots=slots)()
        assert losses_of(frozen).tolist() == pytest.approx(plain(), abs=1e-6)
        assert frozen.reduction == "mean"
    for loss_fn in (torch.jit.script(nn.CrossEntropyLoss()), Around(nn.CrossEntropyLoss())):
        with pytest.raises(sb.LossError, match=r"cannot be copied with reduction=.*losses="):
            losses_of(loss_fn)


class CountingLoss(nn.CrossEntropyLoss):
    """A loss that keeps count of its calls, and grows with them."""

    calls = 0

    def forward(self, outputs, targets):
        self.calls = self.calls + 1
        return super().forward(outputs, targets) * self.calls


def test_a_loss_may_be_changed_between_batches():
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor(CLASS_WEIGHTS))
    partial = functools.partial(functional.cross_entropy, reduction="sum")
    losses, of_partial = ExampleLosses(loss_fn), ExampleLosses(partial)
    expected = {}
    for _ in range(2):
        found = losses(Echo(), (LOGITS, TARGETS)).tolist()
        assert found == pytest.approx(plain(weights=CLASS_WEIGHTS, **expected), abs=1e-6)
        expected["smoothing"] = loss_fn.label_smoothing = 0.1
    loss_fn.reduction = "sum"
    loss_fn.ignore_index = 1
    assert (losses.unreduced.reduction, losses.unreduced.ignored) == ("sum", 1)
    assert losses(Echo(), (LOGITS, TARGETS))[1] == 0
    loss_fn.weight = torch.ones(3)
    found = losses(Echo(), (LOGITS, TARGETS)).tolist()
    assert [found[0], *found[2:]] == pytest.approx(np.delete(plain(**expected), 1), abs=1e-6)
    loss_fn.double()
    loss_fn.weight.mul_(2)
    assert losses(Echo(), (LOGITS.double(), TARGETS))[0] == pytest.approx(2 * found[0])
    assert of_partial(Echo(), (LOGITS, TARGETS)).tolist() == pytest.approx(plain(), abs=1e-6)
    partial.keywords.update(label_smoothing=0.1, ignore_index=1)
    assert of_partial.unreduced.ignored == 1
    found = of_partial(Echo(), (LOGITS, TARGETS)).tolist()
    assert [found[0], *found[2:]] == pytest.approx(np.delete(plain(**expected), 1), abs=1e-6)


def test_what_a_loss_counts_while_it_scores_is_forgotten():
    losses = ExampleLosses(CountingLoss())
    with torch.no_grad():
        for _ in range(3):
            assert losses(Echo(), (LOGITS, TARGETS)).tolist() == pytest.approx(plain(), abs=1e-6)
    assert losses.loss_fn.calls == 0


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (4, 2, 3, 2)])
def test_a_squared_error_is_averaged_over_all_axes_but_the_first(shape):
    outputs, targets = torch.randn(shape), torch.randn(shape)
    expected = [
        ((row - goal) ** 2).mean().item() for row, goal in zip(outputs, targets, strict=True)
    ]
    assert losses_of(nn.MSELoss(), outputs, targets).tolist() == pytest.approx(expected, abs=1e-6)


@given(
    st.lists(st.lists(st.integers(-1, 2), min_size=5, max_size=5), min_size=1, max_size=6),
    st.sampled_from([-1, 2]),
)
def test_masked_tokens_are_left_out_of_the_mean(targets, ignored):
    # class 2 stands for padding, or -1 does; nothing else may be out of range
    targets = [[max(token, 0) if ignored == 2 else token for token in row] for row in targets]
    logits = torch.randn(len(targets), 5, 3, generator=torch.Generator().manual_seed(0))
    loss_fn = nn.CrossEntropyLoss(ignore_index=ignored)
    found = losses_of(loss_fn, logits.transpose(1, 2), torch.tensor(targets))
    expected = [
        reference.token_cross_entropy(tokens, answers, ignored=ignored)
        for tokens, answers in zip(logits.tolist(), targets, strict=True)
    ]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_targets_that_are_probabilities_are_not_masked():
    logits, targets = torch.randn(2, 3, 4), torch.rand(2, 3, 4)
    found = losses_of(nn.CrossEntropyLoss(), logits, targets)
    expected = -(logits.log_softmax(1) * targets).sum(1).mean(1)
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("loss_fn", "expected"),
    [
        (nn.CrossEntropyLoss(), -100),
        (nn.NLLLoss(ignore_index=7), 7),
        (functional.cross_entropy, -100),
        (functools.partial(functional.cross_entropy, ignore_index=5), 5),
        (torch.compile(nn.CrossEntropyLoss(ignore_index=3), backend="eager"), 3),
        (nn.MSELoss(), None),
        (functional.mse_loss, None),
        (lambda outputs, targets: outputs, None),
        (lambda outputs, targets, ignore_index=None: outputs, None),
        (max, None),  # a builtin whose signature is unknown
    ],
)
def test_the_target_that_is_left_out_is_the_users(loss_fn, expected):
    assert ExampleLosses(loss_fn).unreduced.ignored == expected


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        (torch.tensor(1.0), "scalar.*per example.*losses="),
        (torch.ones(3), r"\(3,\).*batch of 4"),
        (torch.ones(8), r"\(8,\).*batch of 4"),
        (torch.ones(4, 1), r"\(4, 1\).*batch of 4"),
        (torch.ones(4, 6), r"\(4, 6\).*batch of 4"),
        (3.0, "got float"),
        (None, "got NoneType"),
        ([1.0, 2.0, 3.0, 4.0], "got list"),
        (losses_of(lambda outputs, targets: outputs.mean()), "scalar"),
    ],
)
def test_what_is_not_one_number_per_example_is_refused_with_advice(losses, found):
    with pytest.raises(sb.LossError, match=found) as refusal:
        check_losses(losses, 4)
    assert ADVICE in str(refusal.value)


def test_losses_that_count_something_become_floats():
    assert check_losses(torch.tensor([True, False]), 2).tolist() == [1.0, 0.0]
    assert check_losses(torch.tensor([3, 4]), 2).dtype == torch.float32
    half = torch.ones(2, dtype=torch.float16)
    assert check_losses(half, 2) is half


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ((LOGITS,), "tuple of 1"),
        ((LOGITS, TARGETS, TARGETS), "tuple of 3"),
        ({"x": LOGITS, "y": TARGETS}, "a dict,"),
        (LOGITS, "a Tensor,"),
    ],
)
def test_a_batch_that_is_no_pair_is_refused_with_what_to_pass(batch, found):
    with pytest.raises(sb.LossError, match=found) as refusal:
        ExampleLosses(nn.CrossEntropyLoss())(Echo(), batch)
    assert "losses=callable" in str(refusal.value)
    assert "outputs=callable" in str(refusal.value)


def test_losses_come_from_outputs_of_any_batch_or_from_the_user():
    batch = {"x": LOGITS, "y": TARGETS}
    losses = find_losses(nn.CrossEntropyLoss(), None, lambda model, b: [model(b["x"]), b["y"]])
    assert losses(Echo(), batch).tolist() == pytest.approx(plain(), abs=1e-6)
    assert find_losses(nn.CrossEntropyLoss(), max, None) is max  # the user's own come first
    with pytest.raises(sb.ConfigurationError, match=r"loss.*got None"):
        find_losses(None, None, None)
