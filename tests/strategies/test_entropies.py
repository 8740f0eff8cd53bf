"""What is recorded of a cross-entropy is what it has above its lowest; no other loss passes."""

import functools
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from selective_backprop._batches.losses import ExampleLosses, average_examples
from selective_backprop.strategies._auto.entropies import ExcessLosses, excess_losses


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
    loss_fn = nn.CrossEntropyLoss(weight, label_smoothing=smoothing, reduction="none")
    outputs = torch.tensor([[0.3, 2.0, -1.0, 0.5], [0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    losses = loss_fn(outputs, targets)
    found = excess_losses(loss_fn, losses, outputs, targets)
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
    logits = torch.zeros(1, 4, 3)
    found = excess_losses(smooth, smooth(logits, tokens), logits, tokens)
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


def of_sigmoids(outputs, targets):
    return functional.binary_cross_entropy(outputs, targets, reduction="none")


def focal(outputs, targets):
    losses = entropy(outputs, targets)
    return (1 - (-losses).exp()) ** 2 * losses


def absolute(outputs, targets):
    return (outputs.softmax(1) - functional.one_hot(targets, 5)).abs().sum(1)


OF_FIVE = torch.randn(32, 5, generator=torch.Generator().manual_seed(0))
FIVE = torch.arange(32) % 5
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


def of_tokens(outputs, targets):
    """A mean over each row's tokens that count, with the classes last."""
    losses = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view_as(targets).sum(1) / (targets != -100).sum(1)


def of_next_tokens(outputs, targets):
    return of_tokens(outputs[:, :-1], targets[:, 1:])


@pytest.mark.parametrize(
    ("loss_fn", "outputs", "targets", "warned"),
    [
        (lambda *both: entropy(*both), OF_FIVE, FIVE, False),
        (lambda *both: entropy(*both), OF_FIVE.bfloat16(), FIVE, False),
        (lambda *both: entropy(*both), OF_FIVE, FIVE.where(FIVE > 0, -100), False),
        (lambda *both: entropy(*both), OF_FIVE.view(8, 5, 4), FIVE.view(8, 4), False),
        (of_probabilities, OF_FIVE.softmax(1), FIVE, False),
        (functools.partial(functional.cross_entropy, label_smoothing=0.3), OF_FIVE, FIVE, False),
        (nn.CrossEntropyLoss(weight=UNEVEN), OF_FIVE, FIVE, False),
        (lambda *both: entropy(*both).mean(1), OF_FIVE.view(8, 5, 4), FIVE.view(8, 4), False),
        (of_tokens, OF_FIVE.view(4, 8, 5), FIVE.view(4, 8).where(FIVE.view(4, 8) > 0, -100), False),
        (of_next_tokens, OF_FIVE.view(4, 8, 5), FIVE.view(4, 8), False),
        (lambda *both: entropy(*both), OF_FIVE, OF_FIVE.flip(0).softmax(1), False),
        (lambda *both: own_of_labels(*both, "none").sum(1), OF_FIVE, LABELS, False),
        (
            lambda each, yes: own_of_labels(each[:, 0], yes, "none"),
            OF_FIVE[:, :1],
            LABELS[:, 0],
            False,
        ),
        (lambda outputs, targets: outputs[:, 0].abs(), OF_FIVE[:, :1], FIVE * 0, True),
        (lambda outputs, targets: outputs.abs().sum(1), OF_FIVE, OF_FIVE.softmax(1), True),
        (
            lambda each, two: two[1] * entropy(each, two[0]),
            OF_FIVE,
            (FIVE, OF_FIVE[:, 0] ** 2),
            True,
        ),
        (lambda each, named: entropy(each, named["class"]), OF_FIVE, {"class": FIVE}, True),
        (lambda each, counts: (each[:, 0] - counts) ** 2, OF_FIVE[:, :1], FIVE, True),
        (lambda each, yes: own_of_labels(each[:, 1], yes, "none"), OF_FIVE, LABELS[:, 1], True),
        (own_of_labels, OF_FIVE, LABELS, False),
        (own_of_labels, OF_FIVE.bfloat16(), LABELS.long(), False),
        (own_of_labels, OF_FIVE[:, 0], LABELS[:, 0], False),
        (masked, OF_FIVE, LABELS.where(LABELS > 0, torch.nan), False),
        (of_sigmoids, OF_FIVE.sigmoid(), LABELS, False),
        (functools.partial(own_of_labels, pos_weight=UNEVEN), OF_FIVE, LABELS, True),
        (lambda *both: own_of_labels(*both, "none") ** 2, OF_FIVE, LABELS, True),
        (one_hot, OF_FIVE, FIVE, True),
        (lambda *both: entropy(*both, label_smoothing=0.3), OF_FIVE, FIVE, True),
        (lambda *both: entropy(*both, weight=UNEVEN), OF_FIVE, FIVE, True),
        (lambda *both: 10 * entropy(*both), OF_FIVE.bfloat16(), FIVE, True),
        (focal, OF_FIVE, FIVE, True),
        (absolute, OF_FIVE, FIVE, True),
    ],
)
@pytest.mark.filterwarnings("always::selective_backprop.SelectionWarning")
def test_what_reads_confidence_from_a_loss_of_ones_own_warns_if_it_is_no_cross_entropy(
    loss_fn, outputs, targets, warned, recwarn
):
    for excess in (False, True):
        average = ExcessLosses() if excess else average_examples
        ExampleLosses(loss_fn, average=average)(nn.Identity(), (outputs, targets))
        told = ["cross-entropies of these outputs" in str(each.message) for each in recwarn]
        assert told == [True] * (warned and excess)


@pytest.mark.parametrize("loss_fn", [nn.BCEWithLogitsLoss(), own_of_labels, masked])
def test_losses_of_labels_are_summed_whoever_wrote_the_loss(loss_fn):
    losses = ExampleLosses(loss_fn, average=ExcessLosses())
    soft = 0.1 + 0.8 * LABELS
    found = [losses(nn.Identity(), (OF_FIVE, each)) for each in (LABELS, soft)]
    plain = nn.BCEWithLogitsLoss(reduction="none")
    for each, targets in zip(found, (LABELS, soft), strict=True):
        expected = excess_losses(plain, plain(OF_FIVE, targets), OF_FIVE, targets)
        torch.testing.assert_close(each, expected)
    unknown = torch.full_like(LABELS[:, :1], torch.nan)
    if loss_fn is masked:
        more = losses(nn.Identity(), (OF_FIVE, torch.cat([LABELS[:, :4], unknown], 1)))
        torch.testing.assert_close(more, found[0] - plain(OF_FIVE, LABELS)[:, 4])
