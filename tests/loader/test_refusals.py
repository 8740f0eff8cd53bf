"""What cannot work is refused when the loader is built, and the message says what to write."""

import sys
import types
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fixture_language import Lines, make_model, pad
from fixture_loaders import Numbered, NumberedStream, fixture_data, numbers, select, selective
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Sampler, TensorDataset, default_collate
from unhooked import unhooked

import selective_backprop as sb

LOSS = nn.CrossEntropyLoss()
ALL = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)
WARM = sb.selective_backprop(1 / 2)  # mistakes are found though an epoch is not selected from
SUBSET = sb.Subset(torch.arange(0, 8, 2), 8)
FRACTIONS = selective(start=0.1, end=0.9)


def build(strategy: Any = WARM, loader: Any = None, **options: Any) -> sb.SelectiveLoader:
    loader = DataLoader(fixture_data(), 4) if loader is None else loader
    options = {"model": nn.Linear(2, 2), "loss_fn": LOSS} | options
    with unhooked():
        return sb.SelectiveLoader(loader, strategy=strategy, **options)


def listed(*batches: Any, **options: Any) -> DataLoader:
    return DataLoader(Numbered(8), batch_sampler=list(batches), **options)


class Sized(NumberedStream):
    def __len__(self) -> int:
        return self.examples


class Elsewhere(nn.Linear):
    """A layer whose parameters say that they are on other devices, which need not be there."""

    def __init__(self, *devices: str) -> None:
        super().__init__(2, 2)
        self.devices = devices

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        return (SimpleNamespace(device=torch.device(device)) for device in self.devices)


class Endless(torch.utils.data.Dataset):
    def __getitem__(self, index: int) -> int:
        return index


def pruned(data: Any, subset: sb.Subset = SUBSET, **options: Any) -> dict[str, Any]:
    size = {} if "batch_sampler" in options else {"batch_size": 4}
    return {"strategy": sb.pruned(subset), "loader": DataLoader(data, **size, **options)}


RANGES = torch.arange(8).split(4)  # a batch sampler that has no `batch_size`
STREAM, EIGHT = DataLoader(NumberedStream(8), 4), DataLoader(Numbered(8), 4)
REFUSED: list[tuple[type[Exception], str, dict[str, Any]]] = [
    # what is given to the loader, when it is built
    (sb.ConfigurationError, "epochs= .*progress=", {"epochs": 3, "progress": lambda: 0.0}),
    (sb.ConfigurationError, "'keep'.*'carry', 'flush', 'drop'", {"leftovers": "keep"}),
    (sb.ConfigurationError, "'ignore'.*'raise', 'skip', 'select'", {"nonfinite": "ignore"}),
    (sb.ConfigurationError, r"whole='mask'.*\{'mask'\}", {"whole": "mask"}),
    (sb.ConfigurationError, r"backprop\(\.\.\.\)", {"strategy": sb.selective_backprop}),
    (sb.ConfigurationError, r"Strategy\(name, sc", {"strategy": sb.selectors.Percentile(2.0)}),
    (sb.ConfigurationError, r"'auto'; write sb\.auto\(\)", {"strategy": "auto"}),
    (sb.ConfigurationError, "epochs= .*progress=", {"strategy": selective(start=0.1)}),
    (sb.ConfigurationError, "epochs= .*progress=", {"strategy": selective(end=0.9)}),
    (
        sb.ConfigurationError,
        "pass progress=c",
        {"strategy": FRACTIONS, "loader": STREAM, "epochs": 3},
    ),
    (
        sb.ConfigurationError,
        r"MSELoss is no cross.*: selective_backprop\(",  # recorded_sb refuses a stream
        {"strategy": sb.auto(stream=True), "loader": STREAM, "loss_fn": nn.MSELoss()},
    ),
    (sb.ConfigurationError, "1 epochs", {"epochs": 1}),
    (sb.ConfigurationError, "loss function", {"loss_fn": None}),
    (sb.ConfigurationError, "model.*none", {"model": None}),
    (sb.ConfigurationError, "cpu, cuda.*device=", {"model": Elsewhere("cpu", "cuda")}),
    (sb.ConfigurationError, "batch_size=", {"loader": listed([0, 1], [2, 3, 4])}),
    # what it wraps
    *((sb.LoaderError, "DataLoader.* got", {"loader": each}) for each in ([1, 2], Sized(4), 3)),
    (sb.LoaderError, "is a SelectiveLoader", {"loader": select(EIGHT, ALL)}),
    (sb.LoaderError, "empty", {"loader": DataLoader(Numbered(0), 4)}),
    (sb.LoaderError, "empty", {"loader": DataLoader(Numbered(3), 4, drop_last=True)}),
    (sb.LoaderError, "empty", {"loader": listed(), "batch_size": 4}),
    (sb.LoaderError, "empty", {"loader": DataLoader(Sized(0), 4)}),
    (sb.LoaderError, "empty", {"loader": DataLoader(Sized(0), 4), "strategy": sb.traditional()}),
    # subsets
    (
        sb.LoaderError,
        "1 examples",
        pruned(EIGHT.dataset, sb.Subset(torch.arange(1), 8), drop_last=True),
    ),
    (sb.ConfigurationError, "has one of 7", pruned(Numbered(7))),
    (sb.ConfigurationError, "has one of 9", pruned(Numbered(9))),
    (sb.LoaderError, r"tuple.* batch_size=", pruned(Numbered(8), batch_sampler=RANGES)),
    (sb.LoaderError, "Endless .*len", {**pruned(Endless(), batch_sampler=RANGES), "batch_size": 4}),
]


@pytest.mark.parametrize(("error", "message", "given"), REFUSED, ids=[each[1] for each in REFUSED])
def test_what_cannot_work_is_refused_when_the_loader_is_built(error, message, given):
    with pytest.raises(error, match=message):
        build(**given)


TAKEN: list[dict[str, Any]] = [
    {"strategy": FRACTIONS, "epochs": 3},
    {"strategy": FRACTIONS, "loader": STREAM, "progress": lambda: 0.5},
    {"epochs": 1.5},
    {"strategy": selective(0.3), "batch_size": 30},
    {"strategy": selective(0.3, draw="bernoulli")},
    {"strategy": sb.traditional(), "loader": listed([0, 1], [2, 3, 4])},
    {"strategy": sb.random_backprop(1 / 2), "model": Elsewhere("cpu", "cuda"), "device": "cpu"},
]


@pytest.mark.parametrize("given", TAKEN)
def test_what_works_is_taken_without_a_warning(given):
    assert build(**given).stats.epoch == -1


STREAMS = [
    STREAM,
    DataLoader(NumberedStream(8), None),
    DataLoader(Numbered(8), None),
    DataLoader(Numbered(8), 4, num_workers=1, in_order=False),
]
BY_INDEX = [
    sb.auto(),
    sb.random_backprop(1 / 2),
    sb.stale_sb(1 / 2),
    sb.predicted_sb(1 / 2),
    sb.recorded_sb(1 / 2),
    sb.rho_loss(torch.ones(8), 1 / 2),
    sb.pruned(SUBSET),
]


@pytest.mark.parametrize("strategy", BY_INDEX, ids=lambda each: each.name)
def test_what_selects_by_index_refuses_a_stream(strategy):
    for stream in STREAMS:
        advice = "" if strategy.subset is not None else r".* sb\.auto\(stream=True\) or sb\.sel"
        with pytest.raises(sb.LoaderError, match=f"by index{advice}"):
            select(stream, strategy, batch_size=4, with_selection=True)


def collate_ragged(examples: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
    return (*default_collate(examples), torch.zeros(2))


def names_alone(examples: list[Any]) -> dict[str, Any]:
    return {"names": [f"n{target}" for _, target in examples]}


def odd(examples: list[Any]) -> dict[str, Any]:
    return {"x": torch.zeros(4), "o": object()}


class OwnWay(DataLoader):
    """Iterates without looking at its batch sampler."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self.dataset)):
            yield self.collate_fn([self.dataset[index]])


FIRST: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (
        sb.LossError,
        "scalar.*contrastive",
        {"loss_fn": lambda *each: functional.cross_entropy(*each)},
    ),
    (sb.LossError, r"\(3,\).*batch of 4", {"loss_fn": lambda outputs, targets: outputs[:3, 0]}),
    (sb.LossError, "got float", {"loss_fn": lambda outputs, targets: 1.0}),
    (sb.LossError, r"\(4, 2\).*batch of 4", {"losses": lambda model, batch: model(batch[0])}),
    (sb.LossError, r"\(4, 1\).*batch of 4", {"losses": lambda m, batch: m(batch[0])[:, :1]}),
    *(
        (sb.BatchError, message, {"loader": DataLoader(fixture_data(), 4, collate_fn=collate)})
        for collate, message in (
            (names_alone, r"\(dict\).*no tensor"),
            (collate_ragged, r"'2' has 2 .* 4.*whole=\{'2'\}"),
            (odd, "'o' .*object"),
        )
    ),
    (sb.BatchError, "whole= names .* are '0', '1'", {"whole": {"grid"}}),
    (sb.BatchError, "pad= names .* are '0', '1'", {"pad": {"ids": 0.0}}),
    (sb.LoaderError, r"\(OwnWay\)", {"loader": OwnWay(fixture_data(), 4)}),
    (sb.LoaderError, "yielded nothing", {"loader": DataLoader(NumberedStream(0), 4)}),
]
PAIRS = [(WARM, each) for each in FIRST] + [(selective(), each) for each in FIRST]
PAIRS += [(sb.random_backprop(1 / 2), each) for each in FIRST[-4:-1]]
PAIRS += [(sb.traditional(), each) for each in FIRST[-4:]]


@pytest.mark.parametrize(("strategy", "refused"), PAIRS)
def test_what_only_a_batch_can_show_is_refused_at_the_first(strategy, refused):
    error, message, given = refused
    with pytest.raises(error, match=message) as caught:
        next(iter(build(strategy, **given)))
    said = str(caught.value)
    assert error is not sb.LossError or ('reduction="none"' in said and "losses=" in said)


@pytest.mark.parametrize("where", [{}, {"device": "meta"}])
def test_batches_go_to_the_models_device_or_where_they_are_told(where):
    model = nn.Linear(2, 2) if where else Elsewhere("meta")
    inputs, targets = next(iter(build(sb.traditional(), model=model, **where)))
    assert inputs.device.type == targets.device.type == "meta"


def test_a_rate_that_whole_numbers_cannot_meet_or_a_regrouping_is_warned_about():
    with pytest.warns(sb.SelectionWarning, match=r"of 4 .* 13 candidates.* 0\.3077"):
        build(selective(0.3))
    with pytest.warns(sb.SelectionWarning, match="regroups"):
        assert build(selective(), listed([0, 1], [2, 3, 4]), batch_size=3).batch_size == 3


def test_a_loader_prepared_by_accelerate_is_refused_by_name(monkeypatch):
    module = types.ModuleType("accelerate.data_loader")
    exec("class DataLoaderShard(Loader): pass", {"Loader": DataLoader}, vars(module))
    module.DataLoaderShard.__module__ = module.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(sb.LoaderError, match=r"Accelerate \(DataLoaderShard\)"):
        select(module.DataLoaderShard(Numbered(8), 4), selective())


class Secretive(Sampler[int]):
    """Does not say how many indices it has, in one of the two customary ways."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __iter__(self) -> Iterator[int]:
        return iter(range(24))

    def __len__(self) -> int:
        raise self.error


@pytest.mark.parametrize("error", [TypeError, NotImplementedError])
@pytest.mark.parametrize("strategy", [sb.random_backprop(1 / 2), selective()])
def test_a_sampler_of_unknown_length_works_and_has_no_length(error, strategy):
    loader = select(DataLoader(Numbered(24), 4, sampler=Secretive(error)), strategy)
    with pytest.raises(TypeError):
        len(loader)
    assert [len(batch) for batch in numbers(loader)] == [4] * 3
    assert loader.progress is None


def test_indices_are_not_recorded_in_the_place_of_a_selection():
    loader = build(sb.auto(), epochs=3, with_selection=True)
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
    loader = build(strategy, epochs=3, with_selection=True)
    told = []
    for _ in range(5):
        for (_, targets), selection in loader:
            loader.record(selection, torch.linspace(0.1, 2, len(targets)), targets=targets)
        told.append(sum("epochs=3 were given" in str(each.message) for each in recwarn))
    assert told == [0, 0, 0, warned, warned]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss_fn", [nn.MSELoss(), nn.SmoothL1Loss(), functional.l1_loss])
def test_targets_that_lack_the_outputs_last_axis_are_refused_at_the_first_batch(loss_fn) -> None:
    net = nn.Linear(10, 1)
    loader = DataLoader(TensorDataset(torch.randn(32, 10), torch.randn(32)), 8)
    crossed = r"outputs of shape \(8, 1\) and targets of shape \(8,\) were broadcast to \(8, 8\)"
    with pytest.raises(sb.LossError, match=crossed):
        next(iter(sb.SelectiveLoader(loader, net, loss_fn, sb.selective_backprop(rate=1 / 2))))
    with pytest.raises(sb.LossError, match=crossed):
        sb.SelectiveStep(net, loss_fn, ALL)(next(iter(loader)))
    squeezed = nn.Sequential(net, nn.Flatten(0))
    assert len(sb.SelectiveStep(squeezed, loss_fn, ALL)(next(iter(loader))).losses) == 4


def test_classes_on_the_last_axis_are_refused_with_what_to_write() -> None:
    lines = Lines()
    model = make_model(lines)

    def as_they_come(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(batch["input_ids"]), batch["labels"]

    batch = pad([lines[index] for index in range(4)])
    step = sb.SelectiveStep(model, LOSS, ALL, outputs=as_they_come)
    with pytest.raises(RuntimeError, match="target size") as refusal:
        step(batch)
    assert "logits.movedim(-1, 1)" in refusal.value.__notes__[0]
