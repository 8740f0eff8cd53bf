"""Numbers are checked where they are given to the public face, and named where they are wrong."""

import collections.abc
import importlib
import inspect
import math
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from unhooked import unhooked

import selective_backprop as sb

Table = dict[str, Callable[[], dict[str, Any]]]

PUBLIC = {
    name: getattr(module, name)
    for module in (sb, sb.scorers, sb.selectors, sb.experimental, sb.guide)
    for name in module.__all__
}


def data() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(16, 3), torch.arange(16) % 2), 4)


def wrapped() -> dict[str, Any]:
    return {
        "loader": data(),
        "model": nn.Linear(3, 2),
        "loss_fn": nn.CrossEntropyLoss(),
        "strategy": sb.top_k(0.5),
    }


def scheduled() -> dict[str, Any]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    loader = sb.SelectiveLoader(**wrapped())
    return {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3), "loader": loader}


def scored_by(**options: Any) -> dict[str, Any]:
    return {
        "loader": data(),
        "make_model": lambda: nn.Linear(3, 2),
        "train": lambda model, seed: None,
        "models": 1,
        **options,
    }


def given(**arguments: Any) -> Callable[[], dict[str, Any]]:
    return lambda: arguments


def proxied() -> dict[str, Any]:
    return {"make_model": lambda: nn.Linear(3, 2), "make_optimizer": torch.optim.Adam}


FORWARD = sb.scorers.Forward()
HALF = torch.full((8,), 0.5, dtype=torch.float64)
PART = sb.Subset(torch.arange(4), 8)
REFERENCE = sb.scorers.ReferenceLosses(torch.ones(16))
BARE = (
    *("Average", "BelowMean", "Check", "Confident", "Crossing", "Everything", "Forward"),
    *("GaussianProcess", "Hide", "Needs", "Proportional", "ReuseActivations"),
    *("Schedule", "Stopwatch", "VarianceGate", "auto"),
    *("easy_skip", "infobatch", "kakurenbo", "kath18", "tail_sft", "traditional"),
)
RATED = (
    *("Bottom", "Terms", "Top", "Uniform", "low_k", "predicted_sb", "random_backprop"),
    *("random_scored", "recorded_sb", "selective_backprop", "stale_sb", "top_k"),
)

# By name, with arguments that it takes: those that it must be given, and those without which an
# option has no meaning.
TAKES: Table = {
    **dict.fromkeys(BARE, given()),
    **dict.fromkeys(RATED, given(rate=0.5)),
    "CandidateScheduler": scheduled,
    "Choice": given(rows=torch.arange(2)),
    "Context": given(batch_size=8, window=16),
    "Doubts": given(examples=8),
    "Excess": given(reference=REFERENCE, scorer=FORWARD),
    "History": given(capacity=8),
    "Ledger": given(examples=8),
    "Log": given(to=print),
    "NonzeroRows": given(backfill=4),
    "Percentile": given(beta=2),
    "Pipelined": given(scorer=FORWARD, every=8),
    "Predicted": given(scorer=FORWARD),
    "Proxy": proxied,
    "Quantized": given(scorer=FORWARD),
    "Recorded": given(),
    "ReferenceLosses": given(losses=torch.ones(8)),
    "RestingPrompts": given(prompts=4),
    "SelectiveLoader": wrapped,
    "SelectiveStep": lambda: {k: v for k, v in wrapped().items() if k != "loader"},
    "Stale": given(scorer=FORWARD),
    "Stateless": given(rule=print),
    "Strategy": given(name="all", scorer=None, selector=sb.selectors.Everything()),
    "Subset": given(indices=torch.arange(4), examples=8),
    "advise": lambda: {"loader": data(), "loss_fn": nn.CrossEntropyLoss()},
    "audit": given(evidence=torch.rand(8)),
    "data_traits": lambda: {"data": data()},
    "diet_sb": given(subset=PART, rate=0.5),
    "draw_exactly": lambda: {"odds": HALF, "count": 4, "generator": torch.Generator()},
    "el2n_scores": scored_by,
    "example_losses": lambda: {
        "loader": data(),
        "model": nn.Linear(3, 2),
        "loss_fn": nn.CrossEntropyLoss(),
    },
    "example_table": given(evidence=torch.rand(8)),
    "find_copies": lambda: {"data": data().dataset},
    "find_label_issues": lambda: {k: v for k, v in wrapped().items() if k != "strategy"},
    "grand_scores": lambda: scored_by(loss_fn=nn.CrossEntropyLoss()),
    "unique_stream": given(examples=()),
    "inclusion_odds": given(weights=HALF, count=4),
    "informative": given(rewards=torch.rand(2, 4)),
    "look_at": given(outputs=torch.rand(4, 2), labels=torch.zeros(4, dtype=torch.int64)),
    "max_variance": given(rewards=torch.rand(2, 4), keep=2),
    "proxy_sb": lambda: {**proxied(), "rate": 0.5},
    "prune": given(scores=torch.rand(8), keep=0.5),
    "pruned": given(subset=PART),
    "rho_loss": given(reference=REFERENCE, rate=0.5),
    "tilted_odds": given(probabilities=HALF, count=4),
    "write_table": lambda: {"table": {}, "path": f"{tempfile.mkdtemp()}/empty.csv"},
}

# What the package gives and nobody else makes: its numbers were found, not asked for.
GIVEN = {
    *("Advice", "Agreement", "ClassVisits", "Copies", "DataTraits", "Delegating"),
    *("ExampleScores", "in_memory_loader", "Look", "Observations", "ScoreStats", "SelectedLosses"),
    *("Selection", "Stats", "StepStats", "Suspects", "WrongShare"),
}
# What is not called: interfaces, errors and names to choose from.
OTHERS = {
    name
    for name, value in PUBLIC.items()
    if not callable(value)
    or name.endswith("Name")
    or (inspect.isclass(value) and (inspect.isabstract(value) or issubclass(value, Exception)))
} | {"Draw", "Leftovers", "Measure", "NonFinite"}

WRONG = ("0.5", "3", "1/3", "many", True, None, math.nan, math.inf, -math.inf, [2], 1j)

# Numbers beyond an option's range. `WRONG` has what is no finite number at all.
BEYOND: dict[str, dict[str, list[float]]] = {
    "Average": {"decay": [-0.1, 1.0], "depth": [0, 1.5]},
    "BelowMean": {"prune": [-0.1, 1.0], "history": [0]},
    "Bottom": {"rate": [0.0, 1.5]},
    "Check": {"batches": [0, 1.5], "least": [-0.1]},
    "Confident": {"floor": [0.0, 1.1], "correction": [-0.1, 1.1]},
    "Crossing": {"rate": [0, 1.5], "points": [7, 8.5], "depth": [1, 2.5]},
    "Doubts": {"examples": [0]},
    "GaussianProcess": {"points": [7, 10.5], "depth": [1, 2.5]},
    "Hide": {"share": [0.0, 1.0], "confidence": [0.49, 1.0], "history": [0]},
    "Percentile": {"beta": [-0.1], "history": [0, 1.5]},
    "Pipelined": {"every": [0, 1.5], "ahead": [0, 1.5]},
    "Predicted": {"epochs": [1, 2.5]},
    "Proportional": {"presample": [1.0, -3.0], "bias": [-0.1, 1.1]},
    "NonzeroRows": {"backfill": [0, 1.5]},
    "Quantized": {"every": [0, 1.5]},
    "Recorded": {"max_age": [0, 1.5]},
    "RestingPrompts": {"explore": [0.0, 1.5], "least": [0.0, 1.5], "prompts": [0, 1.5]},
    "Schedule": {"warmup_epochs": [-1], "start": [-0.1, 1.0], "end": [0.0, 1.1]},
    "SelectiveLoader": {"batch_size": [0, 2.5], "epochs": [0]},
    "Stale": {"epochs": [0, 1.5]},
    "Subset": {"examples": [0], "cost": [-1.0]},
    "Top": {"rate": [0.0, 1.5]},
    "Uniform": {"rate": [0.0, 1.5]},
    "VarianceGate": {"smoothing": [-0.1, 1.0], "probe_every": [0, 2.5], "threshold": [0.0]},
    "max_variance": {"keep": [0, 1.5, 5]},
    "prune": {"keep": [0.0, 1.5]},
    "selective_backprop": {"rate": [0.0, 1.5]},
    "tail_sft": {"rate": [0.0, 1.1], "max_age": [0]},
    "unique_stream": {"most": [1, 2.5]},
}


def kinds(annotation: Any) -> Iterator[Any]:
    """Yield what values may be, or hold, by an annotation; but not what a function takes."""
    if get_origin(annotation) is not collections.abc.Callable:
        yield annotation
        for part in get_args(annotation):
            yield from kinds(part)


def hints(value: Any) -> dict[str, Any]:
    return get_type_hints(value.__init__ if inspect.isclass(value) else value)


def numeric(value: Any) -> dict[str, set[Any]]:
    """Return the kinds of each option of a function or constructor that takes or holds numbers."""
    found = {name: set(kinds(hint)) for name, hint in hints(value).items() if name != "return"}
    return {name: each for name, each in found.items() if each & {int, float}}


def call(name: str, **options: Any) -> Any:
    return PUBLIC[name](**(TAKES[name]() | options))


def test_every_public_name_takes_options_or_is_known_to_take_none():
    tables = [set(TAKES), GIVEN, OTHERS]
    assert set().union(*tables) == set(PUBLIC)
    assert sum(map(len, tables)) == len(PUBLIC)


@pytest.mark.parametrize("framework", ["accelerate", "keras", "lightning", "transformers", "trl"])
def test_the_numbers_that_an_adapter_takes_are_known(framework):
    try:
        adapter = importlib.import_module(f"selective_backprop.integrations.{framework}")
    except (ImportError, sb.ConfigurationError) as missing:
        pytest.skip(str(missing))
    things = [getattr(adapter, name) for name in adapter.__all__]
    found = {(each.__name__, name) for each in things if callable(each) for name in numeric(each)}
    known = {("LightningLoader", "batch_size"), ("LightningLoader", "pad")}
    known |= {("SelectiveTrainer", "pad")}
    ours = ("keep", "pass_rate", "refills", "replay", "replay_age")
    trainers = ("NonzeroRollouts", "NonzeroGRPOTrainer", "NonzeroRLOOTrainer")
    assert found <= known | {(trainer, option) for trainer in trainers for option in ours}


def refuses(name: str, option: str, wrong: Any, **beside: Any) -> None:
    with unhooked(), pytest.raises(sb.SelectiveBackpropError, match=rf"\b{option}="):
        call(name, **beside | {option: wrong})


NUMERIC = {name: numeric(PUBLIC[name]) for name in TAKES}


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_is_no_finite_number_is_refused_by_the_name_of_its_option(wrong):
    for name, options in NUMERIC.items():
        for option, each in options.items():
            if wrong is not None or NoneType not in each:
                beside = {"rate": None} if (name, option) == ("selective_backprop", "beta") else {}
                refuses(name, option, wrong, **beside)


def test_a_number_out_of_its_range_is_refused_by_the_name_of_its_option():
    for name, options in BEYOND.items():
        for option, numbers in options.items():
            for wrong in numbers:
                refuses(name, option, wrong)


def test_padding_that_is_no_number_is_refused():
    for name in (name for name, options in NUMERIC.items() if "pad" in options):
        for wrong in ("0.5", "many", None, [2], 1j):
            refuses(name, "pad", {"0": wrong})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sb.top_k("1/3"), ["rate='1/3'", "of type str", "(0, 1]", "1/3 keeps a third"]),
        (lambda: sb.selectors.Percentile("2"), ["beta='2'", "at least 0"]),
        (lambda: sb.stale_sb(0.5, epochs=" 3 "), ["epochs=' 3 '", "whole number"]),
        (lambda: sb.selectors.Top(None), ["rate=None", "(0, 1]"]),
        (lambda: sb.selectors.Top(True), ["rate=True", "of type bool"]),
        (lambda: call("SelectiveLoader", strategy=sb.top_k(1e-300)), ["rate=1e-300", "4e+300"]),
        (lambda: sb.Log(print, every=2.5), ["every=2.5", "at least 1"]),
    ],
)
def test_a_message_names_the_option_what_was_found_what_is_needed_and_what_to_write(make, said):
    with unhooked(), pytest.raises(sb.ConfigurationError) as refused:
        make()
    assert all(part in str(refused.value) for part in said), refused.value


def test_a_number_of_another_library_is_kept_as_one_of_pythons_own():
    numbers = [np.float32(2), np.int8(2), np.array(2.0), torch.tensor(2), Fraction(2)]
    with unhooked():
        for number in numbers:
            selector = sb.selectors.Percentile(number)
            assert selector == sb.selectors.Percentile(2)
            assert type(selector.beta) in (int, float)
        for number in (np.bool_(True), np.str_("2"), np.array([2.0]), torch.ones(1)):
            refuses("Percentile", "beta", number)


@pytest.mark.parametrize("wrong", ["no", 1, None])
def test_a_flag_is_true_or_false(wrong):
    for name in TAKES.keys() - {"Context", "Needs", "Terms"}:
        for flag in (option for option, hint in hints(PUBLIC[name]).items() if hint is bool):
            refuses(name, flag, wrong)


WAYS = {
    "share": lambda wrong: sb.guide.audit(torch.rand(8)).top(wrong),
    "limit": lambda wrong: sb.guide.audit(torch.rand(8)).write_csv("/dev/null", limit=wrong),
    "rate": lambda wrong: sb.scorers.Agreement.between(torch.rand(8), torch.rand(8), rate=wrong),
    "epoch": lambda wrong: call("SelectiveLoader").set_epoch(wrong),
    "epochs": lambda wrong: call("SelectiveLoader").lengths(wrong),
}


def test_a_method_refuses_what_is_no_number():
    for name, way in WAYS.items():
        for wrong in (wrong for wrong in WRONG if wrong is not None):
            message = f"{name.removesuffix('s')}s?="
            with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
                way(wrong)


@pytest.mark.parametrize("wrapper", ["SelectiveLoader", "SelectiveStep"])
def test_a_model_with_parameters_or_buffers_on_the_meta_device_is_refused(wrapper):
    with pytest.raises(sb.ConfigurationError, match=r"'weight'.*meta device.*to_empty\(device="):
        call(wrapper, model=nn.Linear(3, 2, device="meta"))
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[1].running_mean = torch.zeros(2, device="meta")
    beside = {"device": "cpu"} if wrapper == "SelectiveLoader" else {}
    with pytest.raises(sb.ConfigurationError, match=r"'1.running_mean'.*meta device"):
        call(wrapper, model=model, **beside)
