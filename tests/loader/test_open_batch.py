"""A loss belongs to the batch that was handed out last, row by row: to no other examples, ever."""

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import fixture_open_batch
import pytest
import torch
from fixture_open_batch import BATCH, CHANGES, EXAMPLES, LABELS, Given, Loop, train_as_told
from hypothesis import given, settings
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, ctc_loss, gaussian_nll_loss
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")


@settings(max_examples=300, deadline=None)
@given(fixture_open_batch.TRAININGS)
def test_every_recorded_loss_is_that_of_its_own_example_or_an_error_is_raised(told):
    train_as_told(told)


RIGHT = [  # labels, what the loop makes of them, what it does with each batch
    *(("classes", change, "train") for change in ("float column", "one-hot", "mixed")),
    *(("bytes", change, "train") for change in ("float", "long")),
    *(("yes or no", "float", act) for act in ("halves", "cast halves", "twice", "validate")),
    *(("numbers", "as they are", act) for act in ("thirds", "validate without no_grad")),
    *(("a column", change, "train") for change in ("squeezed", "float")),
    *(("tokens", change, "train") for change in ("as they are", "flattened and cast")),
    ("tokens", "flattened", "halves"),
]


@pytest.mark.parametrize(("labels", "change", "act"), RIGHT)
@pytest.mark.parametrize("strategy", [sb.recorded_sb(1 / 2), sb.infobatch()], ids=lambda s: s.name)
def test_what_a_loop_may_do_with_targets_records_every_loss(strategy, labels, change, act):
    loop = Loop(strategy, LABELS[labels], CHANGES[change])
    for _ in range(3):
        loop.epoch(iter([act] * EXAMPLES), ahead=0, most=9)
        assert loop.check() == EXAMPLES


@pytest.mark.parametrize("left_out", ["leave out", "fail"])
@pytest.mark.parametrize("change", ["as they are", "float"])
def test_a_batch_that_is_left_out_keeps_what_was_known_of_it(change, left_out):
    loop = Loop(sb.recorded_sb(1 / 2), LABELS["yes or no"], CHANGES[change])
    loop.epoch(iter(["train", left_out, "train", "train", "train"]), ahead=0, most=9)
    assert loop.check() == EXAMPLES - BATCH
    held = next(iter(loop.loader))  # a look at a batch, which stays in memory
    loop.epoch(iter(["train"] * EXAMPLES), ahead=0, most=9)
    assert loop.check() > EXAMPLES - BATCH
    del held


def taken(targets: Tensor, loss_fn: Any = None, **options: Any) -> tuple[Any, list[Any]]:
    """Return a loader and its first two batches of six rows."""
    data, options = TensorDataset(torch.randn(24, 3), targets), {"quiet": True} | options
    loss_fn = Given() if loss_fn is None else loss_fn
    loader = sb.SelectiveLoader(
        DataLoader(data, 6), nn.Identity(), loss_fn, sb.recorded_sb(1 / 2), **options
    )
    assert loader.loss_fn
    return loader, iter(loader)


WHOLE, TOKENS = torch.zeros(24, dtype=torch.int64), torch.zeros(24, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("targets", "change", "count", "named"),
    [
        (WHOLE, lambda y: y.clone(), 6, r"int64 \(6,\).*other rows"),
        (WHOLE, lambda y: y.flip(0), 6, "other rows"),
        (WHOLE, lambda y: y[[1, 3]], 2, r"int64 \(2,\).*other rows"),
        (WHOLE, lambda y: y[::2], 3, r"\(3,\).*consecutive"),
        (WHOLE, lambda y: y[0], 1, r"int64 \(\).*consecutive"),
        (WHOLE, lambda y: y.unsqueeze(0), 1, "1 numbers for 6 rows"),
        (WHOLE, lambda y: [y.clone()], 6, "other rows"),
        (WHOLE, lambda y: torch.zeros(9), 9, "9 numbers for 6 rows"),
        (WHOLE, lambda y: y[:4], 2, "2 numbers for 4 rows"),
        (TOKENS, lambda y: y[:, 1:].flatten(), 18, r"int64 \(18,\).*with_selection"),
        (TOKENS, lambda y: y[:2, 1:].flatten(), 6, r"int64 \(6,\).*with_selection"),
        (TOKENS, lambda y: y[:1].float().flatten(), 4, r"float32 \(4,\)"),
        (TOKENS, lambda y: y.t().flatten(), 24, r"int64 \(24,\).*other rows"),
    ],
)
def test_targets_that_may_be_of_other_rows_are_refused(targets, change, count, named):
    loader, batches = taken(targets)
    _, own = next(batches)
    with pytest.raises(sb.LossError, match=named) as refused:
        loader.loss_fn(torch.zeros(count, requires_grad=True), change(own))
    assert "loader.record(selection, losses)" in str(refused.value)
    assert len(str(refused.value).split()) < 90
    assert loader.ledger.recorded.empty


@pytest.mark.parametrize("change", [lambda y: y, lambda y: y[:3], lambda y: y.float()])
def test_a_loop_that_takes_batches_ahead_is_pointed_to_its_selections(change):
    loader, batches = taken(WHOLE)
    (x, first), _ = next(batches), next(batches)
    outputs = torch.zeros(len(change(first)), requires_grad=True)
    with pytest.raises(sb.LossError, match=r"ahead, pass with_selection=True"):
        loader.loss_fn(outputs, change(first))
    assert len(x)


def test_a_loss_outside_the_loop_is_refused_with_when_to_take_it():
    loader, batches = taken(WHOLE)
    *_, (x, last) = batches
    with pytest.raises(sb.LossError, match=r"before the loop(?s:.*)no_grad") as refused:
        loader.loss_fn(x[:, 0].requires_grad_(), last)
    assert "\n    loss = loss_fn(model(inputs), targets)  #" in str(refused.value)
    data = DataLoader(TensorDataset(torch.randn(24, 3), WHOLE), 6)
    options = {"epochs": 2, "with_selection": True}
    loader = sb.SelectiveLoader(data, nn.Identity(), Given(), sb.infobatch(), **options)
    (x, y), _ = next(iter(loader))
    with pytest.raises(sb.LossError, match="before the loop"):
        loader.loss_fn(x[:, 0].requires_grad_(), y)


def test_rows_that_get_no_loss_are_refused_where_the_others_do_not_say_which_they_are():
    loader, batches = taken(WHOLE)
    _, own = next(batches)
    loader.loss_fn(torch.zeros(4, requires_grad=True), own[own >= 0][:4].float())
    with pytest.raises(sb.LossError, match="only 4 of the 6 rows"):
        next(batches)
    for inputs, targets in loader:  # said once; and the batch that did not come takes no loss
        loader.loss_fn(inputs[:, 0].requires_grad_(), targets)
    recorded = torch.as_tensor(loader.ledger.recorded.observe().scores[0])
    known = ~recorded.isnan()
    assert bool(known.any())
    torch.testing.assert_close(recorded[known], loader.dataset[:][0][known, 0].detach())


def test_no_batch_is_kept_alive():
    loader, batches = taken(WHOLE)
    batch = next(batches)
    refs = [weakref.ref(tensor) for tensor in batch]
    loader.loss_fn(batch[0][:, 0].requires_grad_(), batch[1].float())
    next(batches)
    del batch
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_a_second_loss_with_other_targets_warns_once():
    loader, batches = taken(torch.zeros(24, 2))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for x, y in batches:
            for column in y.unbind(1):
                loader.loss_fn(x[:, 0].requires_grad_(), column)
    assert ["different targets" in str(each.message) for each in said] == [True]
    for _ in range(2):  # as a second evaluation of the same does not
        for x, y in loader:
            loader.loss_fn(x[:, 0].requires_grad_(), y[:, 0])
            loader.loss_fn(x[:, 0].requires_grad_(), y[:, 0])


CLASSES, COSTS = torch.arange(24) % 3, torch.tensor([0.1, 3.0, 20.0])
CALLS: dict[str, tuple[Any, Tensor, Callable[..., Tensor], Callable[..., Tensor]]] = {
    # the loss, the targets, a call of it, and the losses of positions that are to be weighted
    "a variance": (
        *(nn.GaussianNLLLoss(), torch.rand(24, 3)),
        lambda loss, x, y: loss(x, y, torch.full_like(x, 2.0)),
        lambda x, y: gaussian_nll_loss(x, y, torch.full_like(x, 2.0), reduction="none"),
    ),
    "names": (
        *(nn.CrossEntropyLoss(), CLASSES),
        lambda loss, x, y: loss(target=y, input=x),
        lambda x, y: cross_entropy(x, y, reduction="none"),
    ),
    "names of a function of one's own": (
        *(lambda scores, labels: cross_entropy(scores, labels, reduction="none"), CLASSES),
        lambda loss, x, y: loss(scores=x, labels=y).mean(),
        lambda x, y: cross_entropy(x, y, reduction="none"),
    ),
    "class weights": (
        *(cross_entropy, CLASSES),
        lambda loss, x, y: loss(x, y, weight=COSTS),
        lambda x, y: cross_entropy(x, y, COSTS, reduction="none") * len(y) / COSTS[y].sum(),
    ),
    "a sum": (
        *(cross_entropy, CLASSES),
        lambda loss, x, y: loss(x, y, reduction="sum"),
        lambda x, y: cross_entropy(x, y, reduction="none") * len(y),
    ),
    "lengths": (
        *(nn.CTCLoss(reduction="sum"), CLASSES.view(24, 1).clamp(min=1)),
        lambda loss, x, y: loss(spoken(x), y, (2,) * len(x), (1,) * len(x)),
        lambda x, y: (
            len(x) * ctc_loss(*(spoken(x), y, (2,) * len(x), (1,) * len(x)), reduction="none")
        ),
    ),
}


def spoken(scores: Tensor) -> Tensor:
    """Log-probabilities of two time steps, `[time, row, class]`."""
    return scores.log_softmax(1).repeat(2, 1, 1)


@pytest.mark.parametrize("name", CALLS)
def test_the_loss_takes_what_the_users_takes(name):
    loss_fn, targets, call, positions = CALLS[name]
    torch.manual_seed(0)
    loader: Any = sb.SelectiveLoader(
        DataLoader(TensorDataset(torch.randn(24, 3), targets), 6),
        *(nn.Identity(), loss_fn, sb.infobatch()),
        epochs=4,
        with_selection=True,
        quiet=True,
    )
    weighing, weights = loader.loss_fn, set()
    for _ in range(3):
        for (x, y), selection in loader:
            losses = positions(x, y)
            losses = losses.reshape(len(x), -1).mean(1)
            torch.testing.assert_close(call(weighing, x, y), (selection.weights * losses).mean())
            weights |= set(selection.weights.tolist())
    assert len(weights) > 1
