"""One loss per example, from whatever loss the user has, and nothing of the user's changed."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop._batches.losses import (
    ADVICE,
    ExampleLosses,
    check_losses,
    excess_losses,
    find_losses,
)

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


class CountingLoss(nn.CrossEntropyLoss):
    """A loss that keeps count of its calls, and grows with them."""

    calls = 0

    def forward(self, outputs, targets):
        self.calls = self.calls + 1
        return super().forward(outputs, targets) * self.calls


@pytest.mark.parametrize(
    "loss_fn",
    [
        nn.CrossEntropyLoss(weight=torch.tensor(CLASS_WEIGHTS), label_smoothing=0.1),
        functools.partial(
            functional.cross_entropy,
            reduction="sum",
            weight=torch.tensor(CLASS_WEIGHTS),
            label_smoothing=0.1,
        ),
    ],
)
def test_label_smoothing_and_class_weights_are_the_users(loss_fn):
    expected = plain(weights=CLASS_WEIGHTS, smoothing=0.1)
    assert losses_of(loss_fn).tolist() == pytest.approx(expected, abs=1e-6)
    assert getattr(loss_fn, "keywords", {"reduction": "sum"})["reduction"] == "sum"


def test_a_loss_may_be_changed_between_batches():
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor(CLASS_WEIGHTS))
    partial = functools.partial(functional.cross_entropy, reduction="sum")
    losses, of_partial = ExampleLosses(loss_fn), ExampleLosses(partial)
    expected = {}
    for _ in range(2):
        found = losses.of_examples(LOGITS, TARGETS).tolist()
        assert found == pytest.approx(plain(weights=CLASS_WEIGHTS, **expected), abs=1e-6)
        expected["smoothing"] = loss_fn.label_smoothing = 0.1
    loss_fn.reduction = "sum"
    loss_fn.ignore_index = 1
    assert (losses.unreduced.reduction, losses.unreduced.ignored) == ("sum", 1)
    assert losses.of_examples(LOGITS, TARGETS)[1] == 0
    loss_fn.weight = torch.ones(3)
    found = losses.of_examples(LOGITS, TARGETS).tolist()
    assert [found[0], *found[2:]] == pytest.approx(np.delete(plain(**expected), 1), abs=1e-6)
    loss_fn.double()
    loss_fn.weight.mul_(2)
    assert losses.of_examples(LOGITS.double(), TARGETS)[0] == pytest.approx(2 * found[0])
    assert of_partial.of_examples(LOGITS, TARGETS).tolist() == pytest.approx(plain(), abs=1e-6)
    partial.keywords.update(label_smoothing=0.1, ignore_index=1)
    assert of_partial.unreduced.ignored == 1
    found = of_partial.of_examples(LOGITS, TARGETS).tolist()
    assert [found[0], *found[2:]] == pytest.approx(np.delete(plain(**expected), 1), abs=1e-6)


def test_what_a_loss_counts_while_it_scores_is_forgotten():
    losses = ExampleLosses(CountingLoss())
    with torch.no_grad():
        for _ in range(3):
            assert losses.of_examples(LOGITS, TARGETS).tolist() == pytest.approx(plain(), abs=1e-6)
    assert losses.loss_fn.calls == 0


def test_a_loss_of_several_outputs_is_averaged_over_them():
    outputs, targets = torch.randn(4, 5), torch.rand(4, 5).round()
    expected = [
        sum(
            -functional.logsigmoid(output if target else -output).item()
            for output, target in zip(row, answers, strict=True)
        )
        / 5
        for row, answers in zip(outputs, targets, strict=True)
    ]
    found = losses_of(nn.BCEWithLogitsLoss(), outputs, targets)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (4, 2, 3, 2)])
def test_a_squared_error_is_averaged_over_all_axes_but_the_first(shape):
    outputs, targets = torch.randn(shape), torch.randn(shape)
    expected = [
        sum(row := ((output - target) ** 2).flatten().tolist()) / len(row)
        for output, target in zip(outputs, targets, strict=True)
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


def test_masked_pixels_are_left_out_of_the_mean():
    logits = torch.randn(3, 4, 2, 2)
    targets = torch.tensor([[[0, 1], [255, 255]], [[3, 255], [2, 1]], [[255, 255], [255, 255]]])
    found = losses_of(nn.CrossEntropyLoss(ignore_index=255), logits, targets)
    expected = [
        reference.token_cross_entropy(
            image.flatten(1).T.tolist(), answers.flatten().tolist(), ignored=255
        )
        for image, answers in zip(logits, targets, strict=True)
    ]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert found[2] == 0


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


class OwnLoss(nn.Module):
    """A loss as people write them, without a reduction."""

    def forward(self, outputs, targets):
        return functional.cross_entropy(outputs, targets)


@pytest.mark.parametrize(
    ("loss_fn", "found"),
    [
        (OwnLoss(), "scalar"),
        (lambda outputs, targets: outputs.mean(), "scalar"),
        (lambda outputs, targets: 3.0, "got float"),
    ],
)
def test_a_loss_without_a_reduction_is_left_to_the_check(loss_fn, found):
    with unhooked():
        losses = losses_of(loss_fn)
    with pytest.raises(sb.LossError, match=found) as refusal:
        check_losses(losses, 4)
    assert ADVICE in str(refusal.value)


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        (torch.tensor(1.0), "scalar.*per example.*take the mean in your loop"),
        (torch.ones(3), r"\(3,\).*batch of 4"),
        (torch.ones(8), r"\(8,\).*batch of 4"),
        (torch.ones(4, 1), r"\(4, 1\).*batch of 4"),
        (torch.ones(4, 6), r"\(4, 6\).*batch of 4"),
        (3.0, "got float"),
        (None, "got NoneType"),
        ([1.0, 2.0, 3.0, 4.0], "got list"),
    ],
)
def test_what_is_not_one_number_per_example_is_refused_with_advice(losses, found):
    with pytest.raises(sb.LossError, match=found) as refusal:
        check_losses(losses, 4)
    assert ADVICE in str(refusal.value)


def test_where_the_number_of_examples_is_unknown_the_axes_still_count():
    assert check_losses(torch.ones(7), None).shape == (7,)
    with pytest.raises(sb.LossError, match=r"\(7, 2\).*per example"):
        check_losses(torch.ones(7, 2), None)


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


def lowest_of(loss_fn, target, classes):
    """The lowest loss that logits can have, found by descent."""
    logits = torch.zeros(1, classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")

    def step():
        optimizer.zero_grad()
        loss = loss_fn(logits, target).sum()
        loss.backward()
        return loss

    optimizer.step(step)
    return float(step().detach())


SOFT = torch.tensor([[0.7, 0.2, 0.1, 0.0], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
COSTS = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("weight", [None, COSTS], ids=["", "weights"])
@pytest.mark.parametrize("targets", [torch.tensor([1, 3]), SOFT], ids=["classes", "soft"])
def test_excess_is_what_a_loss_has_above_its_lowest_in_units_of_its_weight(
    smoothing, weight, targets
):
    def loss_fn(outputs, targets):
        return functional.cross_entropy(
            outputs, targets, weight=weight, label_smoothing=smoothing, reduction="none"
        )

    given = nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing)
    outputs = torch.tensor([[0.3, 2.0, -1.0, 0.5], [0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    losses = loss_fn(outputs, targets)
    found = excess_losses(given, losses, outputs, targets)
    for row in range(2):
        lowest = lowest_of(loss_fn, targets[row : row + 1], 4)
        hard = functional.one_hot(targets, 4).double() if targets.ndim == 1 else targets
        target = (1 - smoothing) * hard[row] + smoothing / 4
        total = float((target * (1.0 if weight is None else weight)).sum())
        assert float(found[row]) == pytest.approx((float(losses[row]) - lowest) / total, abs=1e-6)
    if not smoothing and weight is None and targets.ndim == 1:
        assert found is losses


def test_excess_leaves_other_losses_and_ignored_positions_alone():
    outputs, targets = torch.randn(3, 4), torch.rand(3, 4)
    losses = torch.rand(3, 4)
    assert excess_losses(nn.BCEWithLogitsLoss(), losses, outputs, targets[:, 0]) is losses
    assert excess_losses(lambda x, y: x, losses, outputs, targets) is losses
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1, reduction="none")
    tokens = torch.tensor([[1, -100, 3]])
    found = excess_losses(
        smooth, smooth(torch.zeros(1, 4, 3), tokens), torch.zeros(1, 4, 3), tokens
    )
    assert found.shape == tokens.shape
    assert found.isfinite().all()


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 4), (3, 4, 5)])
@pytest.mark.parametrize("soft", [False, True])
def test_the_excess_of_yes_or_no_labels_is_their_divergence(shape, soft):
    torch.manual_seed(0)
    outputs = torch.randn(shape, dtype=torch.float64)
    targets = torch.rand(shape, dtype=torch.float64)
    targets = targets if soft else targets.round()
    loss_fn = nn.BCEWithLogitsLoss(reduction="none")
    likely = outputs.sigmoid()
    expected = torch.xlogy(targets, targets / likely)
    expected = expected + torch.xlogy(1 - targets, (1 - targets) / (1 - likely))
    # Those of a row count together; pixels are averaged afterwards.
    expected = expected.sum(1) if len(shape) == 2 else expected
    found = excess_losses(loss_fn, loss_fn(outputs, targets), outputs, targets)
    torch.testing.assert_close(found, expected)


def test_the_excess_of_weighted_labels_is_0_where_the_model_can_do_no_better():
    targets = torch.tensor([[0.2, 1.0, 0.0, 0.6]], dtype=torch.float64)
    positive = torch.tensor([3.0, 2.0, 5.0, 0.5], dtype=torch.float64)
    weight = torch.tensor([1.0, 4.0, 0.1, 2.0], dtype=torch.float64)
    loss_fn = nn.BCEWithLogitsLoss(weight=weight, pos_weight=positive, reduction="none")
    best = (positive * targets / (1 - targets)).log().clamp(-40, 40)
    found = excess_losses(loss_fn, loss_fn(best, targets), best, targets)
    torch.testing.assert_close(found, torch.zeros(1, dtype=torch.float64), atol=1e-12, rtol=0)
    off = best.clone()
    off[0, 1] = -2.0  # of a label that is true
    found = excess_losses(loss_fn, loss_fn(off, targets), off, targets)
    torch.testing.assert_close(found[0], -off[0, 1].sigmoid().log())


def test_auto_is_told_of_one_wrong_label_among_many():
    outputs, targets = torch.full((2, 40), -5.0), torch.zeros(2, 40)
    targets[0, 7] = 1.0  # its loss is a fortieth of 5 in the mean
    loader = sb.SelectiveLoader(
        DataLoader(TensorDataset(outputs, targets), 2),
        *(nn.Identity(), nn.BCEWithLogitsLoss(), sb.auto()),
        quiet=True,
    )
    loss_fn = loader.loss_fn
    for batch, labels in loader:
        loss_fn(batch, labels)
    noted = loader.ledger.recorded.observe().scores[0]
    assert noted[0] > 5.0
    assert noted[1] < 0.5


def test_excess_is_found_of_targets_of_one_byte():
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1, reduction="none")
    outputs, targets = torch.randn(3, 300), torch.tensor([7, 255, 0])
    losses = smooth(outputs, targets)
    expected = excess_losses(smooth, losses, outputs, targets)
    assert torch.equal(excess_losses(smooth, losses, outputs, targets.byte()), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("strategy", [sb.auto(), sb.recorded_sb(1 / 2)], ids=lambda each: each.name)
def test_auto_is_told_excess_losses_and_trains_on_the_losses_themselves(strategy, smoothing):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 4)
    model, loss_fn = nn.Linear(4, 4), nn.CrossEntropyLoss(label_smoothing=smoothing)
    loader = sb.SelectiveLoader(DataLoader(data, 64), model, loss_fn, strategy, quiet=True)
    weighing = loader.loss_fn
    for inputs, targets in loader:
        outputs = model(inputs)
        torch.testing.assert_close(weighing(outputs, targets), loss_fn(outputs, targets))
        plain = functional.cross_entropy(
            outputs, targets, label_smoothing=smoothing, reduction="none"
        )
        expected = plain.detach()
        if strategy == sb.auto():  # recorded_sb ranks them, and is told them as they are
            expected = excess_losses(loss_fn, expected, outputs, targets)
    found = torch.from_numpy(loader.ledger.recorded.observe().scores[0])
    torch.testing.assert_close(found, expected)
    lower = float(found.min()) < float(plain.detach().min())
    assert lower == (smoothing > 0 and strategy == sb.auto())


@pytest.mark.parametrize(("strategy", "reads"), [(sb.kakurenbo(), True), (sb.stale_sb(0.5), False)])
def test_scores_exceed_the_lowest_loss_where_confidence_is_read_from_them(strategy, reads):
    data = TensorDataset(torch.eye(8).repeat(4, 1), torch.arange(32) % 8)
    model, loss_fn = nn.Linear(8, 8), nn.CrossEntropyLoss(label_smoothing=0.2)
    model.load_state_dict({"weight": 3.5 * torch.eye(8), "bias": torch.zeros(8)})
    strategy = replace(strategy, schedule=sb.Schedule(warmup_epochs=1))
    loader = sb.SelectiveLoader(DataLoader(data, 8), model, loss_fn, strategy, epochs=2, quiet=True)
    weighing = loader.loss_fn
    for _ in range(2):
        for inputs, targets in loader:
            weighing(model(inputs), targets)
    found = torch.from_numpy(loader.ledger.scored.observe().scores[0])
    assert bool((found[~found.isnan()] < 0.01).all()) == reads
    assert not found.isnan().all()


def entropy(outputs, targets, **options):
    return functional.cross_entropy(outputs, targets, reduction="none", **options)


def of_probabilities(outputs, targets):
    return -outputs.gather(1, targets.unsqueeze(1)).squeeze(1).log()


def focal(outputs, targets):
    losses = entropy(outputs, targets)
    return (1 - (-losses).exp()) ** 2 * losses


def absolute(outputs, targets):
    return (outputs.softmax(1) - functional.one_hot(targets, 5)).abs().sum(1)


OF_FIVE, FIVE = (
    torch.randn(32, 5, generator=torch.Generator().manual_seed(0)),
    torch.arange(32) % 5,
)
UNEVEN = torch.tensor([1.0, 1.0, 1.0, 1.0, 5.0])
LABELS = (OF_FIVE > 0.3).float()


def own_of_labels(outputs, targets, reduction="mean", **options):
    return functional.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype), reduction=reduction, **options
    )


def one_hot(outputs, targets):
    return own_of_labels(outputs, functional.one_hot(targets, 5), "none")


def masked(outputs, targets):
    return own_of_labels(outputs, targets.nan_to_num(), "none") * ~targets.isnan()


@pytest.mark.parametrize(
    ("loss_fn", "outputs", "targets", "warned"),
    [
        (lambda *both: entropy(*both), OF_FIVE, FIVE, False),
        (lambda *both: entropy(*both), 40 * OF_FIVE, FIVE, False),
        (lambda *both: entropy(*both), OF_FIVE.bfloat16(), FIVE, False),
        (lambda *both: entropy(*both), OF_FIVE, FIVE.where(FIVE > 0, -100), False),
        (lambda *both: entropy(*both), OF_FIVE.view(8, 5, 4), FIVE.view(8, 4), False),
        (lambda *both: entropy(*both), OF_FIVE.log_softmax(1), FIVE, False),
        (of_probabilities, OF_FIVE.softmax(1), FIVE, False),
        (functools.partial(functional.cross_entropy, label_smoothing=0.3), OF_FIVE, FIVE, False),
        (nn.CrossEntropyLoss(weight=UNEVEN), OF_FIVE, FIVE, False),
        # Of what is no number for each class nothing is known.
        (lambda outputs, targets: outputs[:, 0].abs(), OF_FIVE[:, :1], FIVE * 0, False),
        (lambda outputs, targets: outputs.abs().sum(1), OF_FIVE, OF_FIVE.softmax(1), False),
        (own_of_labels, OF_FIVE, LABELS, False),
        (own_of_labels, 200 * OF_FIVE, LABELS, False),
        (own_of_labels, OF_FIVE.bfloat16(), LABELS.long(), False),
        (own_of_labels, OF_FIVE[:, 0], LABELS[:, 0], False),
        (masked, OF_FIVE, LABELS.where(LABELS > 0, torch.nan), False),
        (
            lambda *both: functional.binary_cross_entropy(*both, reduction="none"),
            OF_FIVE.sigmoid(),
            LABELS,
            False,
        ),
        (functools.partial(own_of_labels, pos_weight=UNEVEN), OF_FIVE, LABELS, True),
        (lambda *both: own_of_labels(*both, "none") ** 2, OF_FIVE, LABELS, True),
        (one_hot, OF_FIVE, FIVE, True),
        (lambda *both: entropy(*both, label_smoothing=0.3), OF_FIVE, FIVE, True),
        (lambda *both: entropy(*both, weight=UNEVEN), OF_FIVE, FIVE, True),
        (lambda *both: 10 * entropy(*both), OF_FIVE.bfloat16(), FIVE, True),
        (focal, OF_FIVE, FIVE, True),
        (absolute, OF_FIVE, FIVE, True),
        (lambda *both: entropy(*both, label_smoothing=0.3), 0.1 * OF_FIVE, FIVE, True),
    ],
)
@pytest.mark.filterwarnings("always::selective_backprop.SelectionWarning")
def test_what_reads_confidence_from_a_loss_of_ones_own_warns_if_it_is_no_cross_entropy(
    loss_fn, outputs, targets, warned, recwarn
):
    for excess in (False, True):
        ExampleLosses(loss_fn, excess=excess).of_examples(outputs, targets)
        told = ["no cross-entropies of these outputs" in str(each.message) for each in recwarn]
        assert told == [True] * (warned and excess)


@pytest.mark.parametrize("loss_fn", [nn.BCEWithLogitsLoss(), own_of_labels, masked])
def test_losses_of_labels_are_summed_whoever_wrote_the_loss(loss_fn):
    losses = ExampleLosses(loss_fn, excess=True)
    soft = 0.1 + 0.8 * LABELS
    found = [losses.of_examples(OF_FIVE, each) for each in (LABELS, soft)]
    plain = nn.BCEWithLogitsLoss(reduction="none")
    for each, targets in zip(found, (LABELS, soft), strict=True):
        expected = excess_losses(plain, plain(OF_FIVE, targets), OF_FIVE, targets)
        torch.testing.assert_close(each, expected)
    unknown = torch.full_like(LABELS[:, :1], torch.nan)
    if loss_fn is masked:
        more = losses.of_examples(OF_FIVE, torch.cat([LABELS[:, :4], unknown], 1))
        torch.testing.assert_close(more, found[0] - plain(OF_FIVE, LABELS)[:, 4])
