"""The loader's loss weighs and records by the way, so that the loop stays as it was."""

import functools
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, bits, same_tensors, selective
from fixture_training import Training
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")
WORKING = {
    "auto": sb.auto(),
    "infobatch": sb.infobatch(),
    "easy-skip": sb.easy_skip(),
    "recorded-sb": sb.recorded_sb(1 / 3),
    "kath18": sb.kath18(schedule=sb.Schedule(gate=sb.VarianceGate(0.5, 2, threshold=1.1))),
    "stale-sb": sb.stale_sb(1 / 3, spread=True),
}
PLAIN = {"traditional": sb.traditional(), "random": sb.random_backprop(1 / 2), "sb": selective()}


def train(training: Training, loss_fn: Any = None) -> Training:
    """Train for four epochs with a loss that the loop calls, or else by hand."""
    torch.manual_seed(5)
    for _ in range(4):
        if loss_fn is None:
            training.epoch()
            continue
        for (inputs, targets), _ in training.loader:
            training.optimizer.zero_grad()
            loss_fn(training.model(inputs), targets).backward()
            training.optimizer.step()
    return training


def memory(training: Training) -> Any:
    return bits(training.loader.state_dict()["parts"])


@pytest.mark.parametrize("name", WORKING)
def test_a_loop_that_takes_its_loss_from_the_loader_does_what_one_by_hand_does(name):
    ours, theirs = Training(WORKING[name]), train(Training(WORKING[name]))
    train(ours, ours.loader.loss_fn)
    assert same_tensors(ours.model.state_dict(), theirs.model.state_dict())
    assert memory(ours) == memory(theirs)
    assert ours.loader.stats == theirs.loader.stats


def of_rows(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


REDUCED = {
    "mean": (nn.CrossEntropyLoss(), Tensor.mean),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), Tensor.sum),
    "none": (nn.CrossEntropyLoss(reduction="none"), lambda losses: losses),
    "function": (functional.cross_entropy, Tensor.mean),
    "of rows": (of_rows, lambda losses: losses),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", REDUCED)
def test_the_loss_is_reduced_as_the_users_is_in_no_less_precision_than_the_weights(name, dtype):
    given_loss, reduce = REDUCED[name]
    loop = Training(sb.infobatch(), loss_fn=given_loss)
    loss_fn = loop.loader.loss_fn
    for _ in range(3):
        for (inputs, targets), selection in loop.loader:
            outputs = loop.model(inputs).to(dtype)
            weighted = selection.weights * of_rows(outputs, targets)
            assert torch.equal(loss_fn(outputs, targets), reduce(weighted))
            for part in (slice(3), slice(3, len(targets)), slice(0)):
                found = loss_fn(outputs[part], targets[part])
                assert found.dtype == weighted.dtype
                assert len(targets[part]) == 0 or torch.equal(found, reduce(weighted[part]))


@pytest.mark.parametrize("name", PLAIN)
def test_where_nothing_is_weighed_or_recorded_it_is_the_plain_loss(name):
    ours, theirs = Training(PLAIN[name]), Training(PLAIN[name])
    train(ours, ours.loader.loss_fn)
    train(theirs, theirs.loss_fn)
    assert same_tensors(ours.model.state_dict(), theirs.model.state_dict())


SCARCE = torch.tensor([0.1, 3.0, 20.0])


def summed_plainly(
    loss_fn: nn.CrossEntropyLoss, outputs: Tensor, targets: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """A weighted loss, one position after the other, and each row's mean without weights."""
    costs = torch.ones(outputs.shape[1]) if loss_fn.weight is None else loss_fn.weight
    total, divisor, means = 0.0 * outputs.sum(), torch.zeros(()), []
    for row, (logits, labels) in enumerate(zip(outputs, targets, strict=True)):
        own, counted = torch.zeros(()), 0
        logits = logits.reshape(len(logits), -1)
        for place, label in enumerate(labels.flatten()):
            if label == loss_fn.ignore_index:
                continue
            chances = logits[:, place].log_softmax(0)
            loss = -(1 - loss_fn.label_smoothing) * costs[label] * chances[label]
            loss = loss - loss_fn.label_smoothing * (costs * chances).mean()
            own, counted = own + loss, counted + 1
            total, divisor = total + weights[row] * loss, divisor + costs[label]
        means.append(own / max(1, counted))
    reduced = {"sum": total, "mean": total / divisor if divisor else total}
    return reduced[loss_fn.reduction], torch.stack(means)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from([(), (3,), (2, 2)]),
    ignored=st.sampled_from([0.0, 0.4, 0.9]),
    costs=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    reduction=st.sampled_from(["mean", "sum"]),
    function=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_rows_of_any_weight_count_as_in_the_given_loss_whatever_is_ignored(
    shape, ignored, costs, smoothing, reduction, function, seed
):
    torch.manual_seed(seed)
    logits, labels = torch.randn(12, 3, *shape), torch.randint(3, (12, *shape))
    labels[torch.rand(labels.shape) < ignored] = -100
    loss_fn = nn.CrossEntropyLoss(
        SCARCE if costs else None, reduction=reduction, label_smoothing=smoothing
    )
    given_loss = loss_fn
    if function:
        options = {"weight": loss_fn.weight, "reduction": reduction, "label_smoothing": smoothing}
        given_loss = functools.partial(functional.cross_entropy, **options)
    loader = sb.SelectiveLoader(
        DataLoader(TensorDataset(logits, labels), 4),
        *(nn.Identity(), given_loss, sb.infobatch()),
        **{"epochs": 4, "with_selection": True, "quiet": True},
    )
    weighing = loader.loss_fn
    for _ in range(3):
        for (inputs, targets), selection in loader:
            outputs = inputs.requires_grad_()
            loss = weighing(outputs, targets)
            expected, rows = summed_plainly(loss_fn, outputs, targets, selection.weights)
            (ours,) = torch.autograd.grad(loss, outputs)
            (theirs,) = torch.autograd.grad(expected, outputs)
            torch.testing.assert_close(loss, expected)
            torch.testing.assert_close(ours, theirs)
            if bool((selection.weights == 1).all()) and bool((targets >= 0).any()):
                torch.testing.assert_close(loss, loss_fn(outputs, targets))
            found = torch.from_numpy(loader.ledger.recorded.observe().scores[0])
            rows = rows.detach().where((targets >= 0).reshape(len(rows), -1).any(1), torch.nan)
            close = {"atol": 1e-5, "rtol": 1e-5, "equal_nan": True}
            torch.testing.assert_close(found[selection.indices], rows, **close)


def padded(outputs: Tensor, targets: Tensor, reduction: str = "mean", **options: Any) -> Tensor:
    options = {"ignore_index": 0} | options
    return functional.cross_entropy(outputs, targets, reduction=reduction, **options)


def known_to_be_padded(
    outputs: Tensor, targets: Tensor, reduction: str = "mean", ignore_index: int = 0
) -> Tensor:
    return padded(outputs, targets, reduction, ignore_index=ignore_index)


class Noted(nn.Module):
    """A loss with a state, which grows with its calls and draws random numbers."""

    def __init__(self, reduction: str = "mean", generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(()))
        self.reduction, self.calls, self.generator = reduction, 0, generator

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        self.rows += len(targets)
        noise = self.calls * torch.rand(len(targets), generator=self.generator)
        losses = noise * functional.cross_entropy(outputs, targets, reduction="none")
        return losses.mean() if self.reduction == "mean" else losses


def test_a_loss_that_does_not_reduce_the_losses_that_it_returns_is_refused():
    logits, labels = torch.randn(8, 3, 5), torch.randint(3, (8, 5))
    labels[0, 0] = 0

    def weigh(loss_fn: Any) -> Tensor:
        data = DataLoader(TensorDataset(logits, labels), 8)
        loader = sb.SelectiveLoader(data, nn.Identity(), loss_fn, sb.recorded_sb(1 / 2))
        weighing = loader.loss_fn
        return next(weighing(*batch) for batch in loader)

    with pytest.raises(sb.LossError, match=r"but the mean .*give it a parameter ignore_index="):
        weigh(padded)
    for loss_fn in (known_to_be_padded, functools.partial(padded, ignore_index=-1)):
        torch.testing.assert_close(weigh(loss_fn), loss_fn(logits, labels))
    labels[:] = 0
    assert weigh(known_to_be_padded) == 0  # torch gives NaN


@pytest.mark.parametrize("own", [False, True])
def test_a_loss_with_a_state_of_its_own_counts_each_call_once_and_is_not_scored_with(own):
    def train(strategy: sb.Strategy, *, plain: bool) -> tuple[list[float], Noted]:
        loss_fn = Noted(generator=torch.Generator() if own else None)
        loop = Training(strategy, loss_fn=loss_fn)
        torch.manual_seed(0)
        weighing = loss_fn if plain else loop.loader.loss_fn
        return [weighing(loop.model(x), y).item() for (x, y), _ in loop.loader], loss_fn

    expected, theirs = train(sb.traditional(), plain=True)
    found, ours = train(sb.recorded_sb(1 / 2), plain=False)
    assert ours.calls == theirs.calls
    assert ours.rows == theirs.rows
    if not own:  # the comparison draws from a generator of the loss
        assert found == pytest.approx(expected)
    scored, ours = train(selective(), plain=True)
    assert (ours.calls, float(ours.rows)) == (len(scored), 6.0 * len(scored))


@pytest.mark.parametrize(
    "loss_fn",
    [
        nn.MSELoss(reduction="sum"),
        nn.MSELoss(),
        nn.KLDivLoss(reduction="batchmean"),
        nn.KLDivLoss(reduction="sum"),
    ],
    ids=["squares", "mean squares", "divergence", "divergences"],
)
def test_several_outputs_of_a_row_are_reduced_as_they_were(loss_fn):
    data = TensorDataset(torch.randn(12, 4), torch.rand(12, 4).softmax(1))
    loader = sb.SelectiveLoader(DataLoader(data, 4), nn.Identity(), loss_fn, sb.recorded_sb(1 / 2))
    weighing = loader.loss_fn
    for inputs, targets in loader:
        outputs = inputs.log_softmax(1).requires_grad_()
        torch.testing.assert_close(weighing(outputs, targets), loss_fn(outputs, targets))


class Odd(nn.CrossEntropyLoss):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = of_rows(outputs, targets)
        return losses if self.reduction == "none" else losses.median()


@pytest.mark.parametrize(
    ("given_loss", "said"),
    [
        (Odd(reduction="median"), "reduction='median'"),
        (lambda x, y: functional.cross_entropy(x, y), "scalar"),
    ],
)
def test_a_loss_of_an_unknown_reduction_or_of_one_number_is_refused(given_loss, said):
    loop = Training(sb.auto(), loss_fn=given_loss)
    loss_fn = loop.loader.loss_fn
    (inputs, targets), _ = next(iter(loop.loader))
    with pytest.raises(sb.LossError, match=said):
        loss_fn(loop.model(inputs), targets)


def test_without_a_loss_there_is_none_to_take():
    loader = sb.SelectiveLoader(DataLoader(Numbered(8), 4), None, None, sb.traditional())
    with pytest.raises(sb.ConfigurationError, match="no loss function"):
        _ = loader.loss_fn


@pytest.mark.parametrize("strategy", [sb.kath18(), sb.auto(), sb.recorded_sb(1 / 2)])
def test_a_loop_that_does_neither_is_refused_before_anything_is_loaded(strategy):
    data = Numbered(8)
    loader = sb.SelectiveLoader(
        DataLoader(data, 4), nn.Linear(2, 3), nn.CrossEntropyLoss(), strategy, epochs=4
    )
    with pytest.raises(sb.ConfigurationError, match=strategy.name) as refused:
        iter(loader)
    said = str(refused.value)
    assert all(way in said for way in ("\n    loss = loss_fn(", "selection.w", "loader.record"))
    assert int(data.reads.sum()) == 0


def test_the_loss_of_another_loader_is_taken_for_the_one_it_was_made_from():
    data = TensorDataset(torch.randn(32, 4), torch.arange(32) % 2)
    model, given = nn.Linear(4, 2), nn.CrossEntropyLoss(label_smoothing=0.1)
    loss_fn = given
    for _ in range(3):
        loader = sb.SelectiveLoader(DataLoader(data, 8), model, loss_fn, sb.auto(), quiet=True)
        loss_fn = loader.loss_fn
    for inputs, targets in loader:
        torch.testing.assert_close(
            loss_fn(model(inputs), targets), given(model(inputs), targets), rtol=1e-6, atol=0
        )
    assert not loader.ledger.recorded.empty


@pytest.mark.parametrize("strategy", [sb.auto(), sb.infobatch()], ids=lambda each: each.name)
def test_a_loop_that_trains_on_another_loss_is_told_so_after_nine_batches(strategy):
    data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 2)
    model, given = nn.Linear(4, 2), nn.CrossEntropyLoss()

    def loop(own: bool, evaluates: bool) -> int:
        options = {"epochs": 8, "quiet": True}
        loader = sb.SelectiveLoader(DataLoader(data, 4), model, given, strategy, **options)
        loss_fn = loader.loss_fn
        for inputs, targets in loader:
            with torch.set_grad_enabled(not evaluates):
                (loss_fn if own else given)(model(inputs), targets)
        return loader.stats.batches

    for own, evaluates in ((False, False), (True, True)):
        with pytest.raises(sb.LossError, match=r"(?s)^9 batches .*outputs\.loss"):
            loop(own, evaluates)
    assert loop(own=True, evaluates=False) == 16
