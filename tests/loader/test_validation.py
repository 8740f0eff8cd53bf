"""What cannot work is refused when the loader is built, and the message says what to write."""

import functools
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, NumberedStream, fixture_data, select, selective
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb

LOSS = nn.CrossEntropyLoss()


def build(strategy: Any, loader: Any = None, **options: Any) -> sb.SelectiveLoader:
    loader = DataLoader(fixture_data(), 4) if loader is None else loader
    with unhooked():
        return sb.SelectiveLoader(loader, nn.Linear(2, 2), LOSS, strategy, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 3, "progress": lambda: 0.0}, "epochs= .*progress="),
        ({"leftovers": "keep"}, "leftovers='keep'.*'carry', 'flush', 'drop'"),
        ({"nonfinite": "ignore"}, "nonfinite='ignore'.*'raise', 'skip', 'select'"),
        ({"whole": "mask"}, r"whole='mask'.*\{'mask'\}"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_can(options, message):
    with pytest.raises(sb.ConfigurationError, match=message):
        build(selective(), **options)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (sb.selective_backprop, r"selective_backprop\(\.\.\.\)"),
        (sb.selectors.Percentile(2.0), r"Strategy\(name, scorer, selector, schedule\)"),
        ("selective-backprop", r"'selective-backprop'; write sb\.auto\(\)"),
    ],
)
def test_what_is_no_strategy_is_refused_with_how_to_make_one(strategy, message):
    with pytest.raises(sb.ConfigurationError, match=message):
        build(strategy)


@pytest.mark.parametrize("fractions", [{"start": 0.1}, {"end": 0.9}])
def test_fractions_of_training_need_its_length(fractions):
    with pytest.raises(sb.ConfigurationError, match=r"epochs= .*progress="):
        build(selective(**fractions))
    with pytest.raises(sb.ConfigurationError, match=r"pass progress=callable"):
        build(selective(**fractions), DataLoader(NumberedStream(8), 4), epochs=3)
    build(selective(**fractions), epochs=3)
    build(selective(**fractions), DataLoader(NumberedStream(8), 4), progress=lambda: 0.5)


def test_a_warm_up_as_long_as_training_is_refused():
    with pytest.raises(sb.ConfigurationError, match="1 epochs"):
        build(sb.selective_backprop(1 / 2), epochs=1)
    build(sb.selective_backprop(1 / 2), epochs=1.5)


def test_scoring_needs_a_loss_and_a_model():
    loader = DataLoader(fixture_data(), 4)
    with pytest.raises(sb.ConfigurationError, match="loss function"):
        sb.SelectiveLoader(loader, nn.Linear(2, 2), None, selective())
    with pytest.raises(sb.ConfigurationError, match=r"model.*none"):
        sb.SelectiveLoader(loader, None, LOSS, selective())


@pytest.mark.parametrize(
    "stream",
    [
        DataLoader(NumberedStream(8), 4),
        DataLoader(NumberedStream(8), None),
        DataLoader(Numbered(8), None),
        DataLoader(Numbered(8), 4, num_workers=1, in_order=False),
    ],
    ids=["stream", "stream of single examples", "single examples", "out of order"],
)
@pytest.mark.parametrize(
    "strategy",
    [
        sb.random_backprop(1 / 2),
        sb.stale_sb(1 / 2),
        sb.stale_sb(1 / 2, spread=True),
        sb.predicted_sb(1 / 2),
        sb.recorded_sb(1 / 2),
        sb.rho_loss(torch.ones(8), 1 / 2),
        sb.tail_sft(),
    ],
)
def test_what_selects_by_index_refuses_a_stream(stream, strategy):
    with pytest.raises(sb.LoaderError, match=r"by index.* sb\.selective_backprop\("):
        select(stream, strategy, batch_size=4, with_selection=True)


def test_the_size_of_training_batches_must_be_known():
    loader = DataLoader(Numbered(8), batch_sampler=[[0, 1], [2, 3, 4]])
    with pytest.raises(sb.ConfigurationError, match="batch_size="):
        select(loader, selective())
    assert select(loader, sb.traditional()).batch_size is None
    with pytest.warns(sb.SelectionWarning, match="regroups"):
        assert select(loader, selective(), batch_size=3).batch_size == 3


class Elsewhere(nn.Linear):
    """A layer whose parameters say that they are on other devices, which need not be there."""

    def __init__(self, *devices: str) -> None:
        super().__init__(2, 2)
        self.devices = devices

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return (SimpleNamespace(device=torch.device(device)) for device in self.devices)


def test_a_model_that_spans_devices_needs_to_be_told_where_its_inputs_go():
    model = Elsewhere("cpu", "cuda")
    loader = DataLoader(fixture_data(), 4)
    with pytest.raises(sb.ConfigurationError, match=r"cpu, cuda.*device="):
        sb.SelectiveLoader(loader, model, LOSS, selective())
    selecting = sb.SelectiveLoader(loader, model, LOSS, sb.random_backprop(1 / 2), device="cpu")
    assert len(list(selecting)) == 5


@pytest.mark.parametrize("where", [{}, {"device": "meta"}])
def test_batches_go_to_the_models_device_or_where_they_are_told(where):
    model = nn.Linear(2, 2) if where else Elsewhere("meta")
    loader = sb.SelectiveLoader(
        DataLoader(fixture_data(), 4), model, LOSS, sb.traditional(), **where
    )
    inputs, targets = next(iter(loader))
    assert inputs.device.type == targets.device.type == "meta"


def test_a_rate_that_whole_numbers_cannot_meet_is_warned_about():
    with pytest.warns(sb.SelectionWarning, match=r"of 4 .* 13 candidates.* 0\.3077"):
        build(selective(0.3))
    build(selective(0.3, draw="bernoulli"))
    build(selective(0.3), batch_size=30)


OTHER = {
    "MSELoss": nn.MSELoss(),
    "mse_loss": functional.mse_loss,
    "l1_loss": functools.partial(functional.l1_loss, reduction="none"),
}
SHIFTED = {
    "smooths labels": nn.CrossEntropyLoss(label_smoothing=0.1),
    "smooths labels, too": functools.partial(functional.cross_entropy, label_smoothing=0.1),
    "weighs classes": nn.CrossEntropyLoss(weight=torch.ones(2)),
    "weighs classes, too": functools.partial(functional.nll_loss, weight=torch.ones(2)),
}
by_confidence = pytest.mark.parametrize(
    "strategy", [sb.auto(), sb.easy_skip(), sb.kakurenbo()], ids=lambda each: each.name
)
PLAIN = (
    LOSS,
    nn.NLLLoss(ignore_index=3),
    nn.BCEWithLogitsLoss(pos_weight=torch.ones(2)),
    functional.cross_entropy,
    functools.partial(functional.cross_entropy, reduction="none"),
    lambda outputs, targets: functional.mse_loss(outputs, targets),  # nobody knows
)


def build_with(loss_fn, strategy, **options):
    loader = DataLoader(fixture_data(), 4)
    return sb.SelectiveLoader(loader, nn.Linear(2, 2), loss_fn, strategy, epochs=3, **options)


@pytest.mark.parametrize("name", OTHER)
@by_confidence
def test_a_loss_that_is_no_cross_entropy_is_refused_where_it_would_be_taken_for_one(strategy, name):
    refusal = f"{strategy.name} takes .* and {name} is no cross-entropy.*recorded_sb"
    with pytest.raises(sb.ConfigurationError, match=refusal):
        build_with(OTHER[name], strategy)
    build_with(OTHER[name], sb.recorded_sb(1 / 2))


@pytest.mark.parametrize("why", SHIFTED)
@by_confidence
def test_losses_that_are_recorded_by_hand_and_have_another_lowest_value_are_warned_of(
    strategy, why
):
    loader = build_with(SHIFTED[why], strategy, with_selection=True)
    with pytest.warns(sb.SelectionWarning, match=f"{strategy.name} takes .* the loss {why[:14]}"):
        iter(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = build_with(SHIFTED[why], strategy)
        assert loader.loss_fn
        iter(loader)
        iter(build_with(SHIFTED[why], sb.recorded_sb(1 / 2), with_selection=True))


@pytest.mark.parametrize("loss_fn", PLAIN)
def test_a_loss_that_may_be_a_cross_entropy_is_taken_for_one(loss_fn):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb.SelectiveLoader(DataLoader(fixture_data(), 4), nn.Linear(2, 2), loss_fn, sb.auto())


def test_indices_are_not_recorded_in_the_place_of_a_selection():
    loader = build_with(nn.CrossEntropyLoss(), sb.auto(), with_selection=True)
    _, selection = next(iter(loader))
    with (
        unhooked(),
        pytest.raises(sb.LoaderError, match=r"not a Tensor: for \(inputs, targets\), "),
    ):
        loader.record(selection.indices, torch.ones(len(selection.indices)))


@pytest.mark.parametrize(
    ("strategy", "warned"), [(sb.infobatch(), True), (sb.recorded_sb(1 / 2), False)], ids=str
)
@pytest.mark.filterwarnings("always::selective_backprop.SelectionWarning")
def test_a_training_that_goes_on_after_its_end_is_warned_of_if_it_selects_no_more(
    strategy, warned, recwarn
):
    loader = build_with(nn.CrossEntropyLoss(), strategy, with_selection=True)
    told = []
    for _ in range(5):
        for (_, targets), selection in loader:
            loader.record(selection, torch.linspace(0.1, 2, len(targets)), targets=targets)
        told.append(sum("epochs=3 were given" in str(each.message) for each in recwarn))
    assert told == [0, 0, 0, warned, warned]
