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

# By name, with arguments that it takes: those that it must be given, and those without which an
# option has no meaning.
TAKES: Table = {
    "Average": given(),
    "BelowMean": given(),
    "Bottom": given(rate=0.5),
    "CandidateScheduler": scheduled,
    "Check": given(),
    "Choice": given(rows=torch.arange(2)),
    "Confident": given(),
    "Context": given(batch_size=8, window=16),
    "Doubts": given(examples=8),
    "Everything": given(),
    "Excess": given(reference=REFERENCE, scorer=FORWARD),
    "Forward": given(),
    "GaussianProcess": given(),
    "Hide": given(),
    "History": given(capacity=8),
    "Ledger": given(examples=8),
    "Log": given(to=print),
    "Needs": given(),
    "NonzeroRows": given(backfill=4),
    "Nonzero": given(),
    "Percentile": given(beta=2),
    "Pipelined": given(scorer=FORWARD, every=8),
    "Predicted": given(scorer=FORWARD),
    "Proportional": given(),
    "Proxy": proxied,
    "Recorded": given(),
    "ReferenceLosses": given(losses=torch.ones(8)),
    "RestingPrompts": given(prompts=4),
    "Schedule": given(),
    "SelectiveLoader": wrapped,
    "SelectiveStep": lambda: {k: v for k, v in wrapped().items() if k != "loader"},
    "Stale": given(scorer=FORWARD),
    "Stateless": given(rule=print),
    "Stopwatch": given(),
    "Strategy": given(name="all", scorer=None, selector=sb.selectors.Everything()),
    "Subset": given(indices=torch.arange(4), examples=8),
    "Terms": given(rate=0.5),
    "Top": given(rate=0.5),
    "Uniform": given(rate=0.5),
    "VarianceGate": given(),
    "advise": lambda: {k: v for k, v in wrapped().items() if k != "strategy"} | {"seconds": 1e-3},
    "audit": given(evidence=torch.rand(8)),
    "auto": given(),
    "data_traits": lambda: {"data": wrapped()["loader"]},
    "diet_sb": given(subset=PART, rate=0.5),
    "drop_zero": given(),
    "draw_exactly": lambda: {"odds": HALF, "count": 4, "generator": torch.Generator()},
    "easy_skip": given(),
    "el2n_scores": scored_by,
    "example_losses": lambda: {
        "loader": scored_by()["loader"],
        "model": nn.Linear(3, 2),
        "loss_fn": nn.CrossEntropyLoss(),
    },
    "example_table": given(evidence=torch.rand(8)),
    "find_copies": lambda: {"data": wrapped()["loader"].dataset},
    "find_label_issues": lambda: {k: v for k, v in wrapped().items() if k != "strategy"},
    "grand_scores": lambda: scored_by(loss_fn=nn.CrossEntropyLoss()),
    "inclusion_odds": given(weights=HALF, count=4),
    "infobatch": given(),
    "informative": given(rewards=torch.rand(2, 4)),
    "kakurenbo": given(),
    "kath18": given(),
    "look_at": given(outputs=torch.rand(4, 2), labels=torch.zeros(4, dtype=torch.int64)),
    "low_k": given(rate=0.5),
    "max_variance": given(rewards=torch.rand(2, 4), keep=2),
    "predicted_sb": given(rate=0.5),
    "proxy_sb": lambda: {**proxied(), "rate": 0.5},
    "prune": given(scores=torch.rand(8), keep=0.5),
    "pruned": given(subset=PART),
    "random_backprop": given(rate=0.5),
    "random_scored": given(rate=0.5),
    "recorded_sb": given(rate=0.5),
    "rho_loss": given(reference=REFERENCE, rate=0.5),
    "selection_probability": given(losses=torch.rand(4), history=torch.rand(8), beta=2),
    "selective_backprop": given(rate=0.5),
    "stale_sb": given(rate=0.5),
    "tail_sft": given(),
    "tilted_odds": given(probabilities=HALF, count=4),
    "top_k": given(rate=0.5),
    "traditional": given(),
    "write_table": lambda: {"table": {}, "path": f"{tempfile.mkdtemp()}/empty.csv"},
}

# What the package gives and nobody else makes: its numbers were found, not asked for.
GIVEN = {
    *("Advice", "Agreement", "ClassVisits", "Copies", "Cut", "DataTraits", "EpochCost"),
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

# What must be given otherwise for an option to have a meaning; None for what must not be given.
BESIDE = {
    ("selective_backprop", "beta"): {"rate": None},
}
WRONG = ("0.5", "3", "1/3", "many", True, None, math.nan, math.inf, -math.inf, [2], 1j)

# Numbers beyond an option's range. `WRONG` has what is no finite number at all.
BEYOND: dict[str, dict[str, list[float]]] = {
    "Average": {"decay": [-0.1, 1.0], "depth": [0, 1.5]},
    "BelowMean": {"prune": [-0.1, 1.0], "history": [0]},
    "Bottom": {"rate": [0.0, 1.5]},
    "Check": {"batches": [0, 1.5], "least": [-0.1]},
    "Confident": {"floor": [0.0, 1.1], "correction": [-0.1, 1.1]},
    "Doubts": {"examples": [0]},
    "GaussianProcess": {"points": [7, 10.5], "depth": [1, 2.5]},
    "Hide": {"share": [0.0, 1.0], "confidence": [0.49, 1.0], "history": [0]},
    "Percentile": {"beta": [-0.1], "history": [0, 1.5]},
    "Pipelined": {"every": [0, 1.5], "ahead": [0, 1.5]},
    "Predicted": {"epochs": [1, 2.5]},
    "Proportional": {"presample": [1.0, -3.0], "bias": [-0.1, 1.1]},
    "NonzeroRows": {"backfill": [0, 1.5]},
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
}

# Options that hold numbers, and what is no number in there; a batch may be padded with any.
HELD = {
    "pad": [{"0": wrong} for wrong in ("0.5", "many", None, [2], 1j)],
}


def kinds(annotation: Any) -> Iterator[Any]:
    """Yield what values may be, or hold, by an annotation; but not what a function takes."""
    if get_origin(annotation) is not collections.abc.Callable:
        yield annotation
        for part in get_args(annotation):
            yield from kinds(part)


def numeric(value: Any) -> dict[str, set[Any]]:
    """Return the kinds of each option of a function or constructor that takes or holds numbers."""
    hints = get_type_hints(value.__init__ if inspect.isclass(value) else value)
    options = inspect.signature(value).parameters
    found = {name: set(kinds(hints[name])) for name in options if name in hints}
    return {name: each for name, each in found.items() if each & {int, float}}


def cases() -> Iterator[Any]:
    for name in TAKES:
        for option, each in numeric(PUBLIC[name]).items():
            known = [wrong for wrong in WRONG if wrong is not None or NoneType not in each]
            known += HELD.get(option, [])
            known += BEYOND.get(name, {}).get(option, [])
            for wrong in known:
                yield pytest.param(name, option, wrong, id=f"{name} {option} {wrong!r}")


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
    ours = ("keep", "pass_rate", "refills")
    trainers = ("NonzeroRollouts", "NonzeroGRPOTrainer", "NonzeroRLOOTrainer")
    assert found <= known | {(trainer, option) for trainer in trainers for option in ours}


@pytest.mark.parametrize("name", sorted(set(TAKES) - {"advise"}))
def test_the_examples_of_arguments_are_taken(name):
    call(name)


@pytest.mark.parametrize(("name", "option", "wrong"), [*cases()])
def test_what_is_no_number_in_its_range_is_refused_by_its_name(name, option, wrong):
    with unhooked(), pytest.raises(sb.SelectiveBackpropError, match=rf"\b{option}="):
        call(name, **BESIDE.get((name, option), {}) | {option: wrong})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: sb.top_k("1/3"),
            ["rate='1/3'", "of type str", "(0, 1]", "write rate=1/3"],
        ),
        (lambda: sb.selectors.Percentile("2"), ["beta='2'", "at least 0", "write beta=2"]),
        (
            lambda: sb.stale_sb(0.5, epochs=" 3 "),
            ["epochs=' 3 '", "whole number", "write epochs=3"],
        ),
        (lambda: call("SelectiveLoader", batch_size="16"), ["write batch_size=16"]),
        (lambda: sb.selectors.Top(None), ["rate=None", "(0, 1]"]),
        (lambda: sb.selectors.Top(True), ["rate=True", "of type bool"]),
        (lambda: sb.selective_backprop(1e-320), ["rate=1e-320", "so small"]),
        (lambda: call("SelectiveLoader", strategy=sb.top_k(1e-300)), ["rate=1e-300", "4e+300"]),
        (lambda: sb.Log(print, every=2.5), ["every=2.5", "at least 1"]),
    ],
)
def test_a_message_names_the_option_what_was_found_what_is_needed_and_what_to_write(make, said):
    with unhooked(), pytest.raises(sb.ConfigurationError) as refused:
        make()
    assert all(part in str(refused.value) for part in said), refused.value


@pytest.mark.parametrize("text", ["2", "many", "1/0", "nan", "1e400"])
def test_a_string_that_reads_as_no_number_that_would_do_is_not_told_to_be_written(text):
    with unhooked(), pytest.raises(sb.ConfigurationError) as refused:
        sb.selectors.Top(text)
    assert "write" not in str(refused.value)


NUMBERS = [np.float64(2), np.float32(2), np.int8(2), np.array(2.0), torch.tensor(2), Fraction(2)]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_number_of_another_library_is_kept_as_one_of_pythons_own(number):
    with unhooked():
        selector, scorer = (
            sb.selectors.Percentile(number),
            sb.experimental.Pipelined(sb.scorers.Forward(), every=number),
        )
    assert selector == sb.selectors.Percentile(2)
    assert {type(selector.beta), type(scorer.every)} <= {int, float}


@pytest.mark.parametrize("number", [np.bool_(True), np.str_("2"), np.array([2.0]), torch.ones(1)])
def test_what_another_library_has_beside_numbers_is_refused(number):
    with unhooked(), pytest.raises(sb.ConfigurationError, match="beta="):
        sb.selectors.Percentile(number)


def test_a_number_of_pythons_own_is_kept_as_it_is():
    with unhooked():
        assert repr(sb.scorers.Stale(sb.scorers.Forward(), epochs=3.0)).count("epochs=3.0,") == 1
        assert repr(sb.selectors.Percentile(2)).startswith("Percentile(beta=2,")
        assert repr(sb.Schedule(warmup_epochs=1.0, start=0)).startswith(
            "Schedule(warmup_epochs=1.0, start=0,"
        )


@pytest.mark.parametrize("wrong", ["no", "false", 1, 0, None, math.nan])
@pytest.mark.parametrize(
    ("name", "flag"),
    [
        (name, option)
        for name in TAKES
        for option, hint in get_type_hints(
            PUBLIC[name].__init__ if inspect.isclass(PUBLIC[name]) else PUBLIC[name]
        ).items()
        if hint is bool and name not in ("Context", "Needs", "Terms")
    ],
)
def test_a_flag_is_true_or_false(name, flag, wrong):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"{flag}="):
        call(name, **{flag: wrong})


WAYS = {
    "share": lambda wrong: sb.guide.audit(torch.rand(8)).top(wrong),
    "shares": lambda wrong: sb.guide.audit(torch.rand(8)).cuts(np.zeros(8, dtype=bool), [wrong]),
    "limit": lambda wrong: sb.guide.audit(torch.rand(8)).write_csv("/dev/null", limit=wrong),
    "rate": lambda wrong: sb.scorers.Agreement.between(torch.rand(8), torch.rand(8), rate=wrong),
    "epoch": lambda wrong: call("SelectiveLoader").set_epoch(wrong),
    "epochs": lambda wrong: call("SelectiveLoader").lengths(wrong),
}


@pytest.mark.parametrize("wrong", [wrong for wrong in WRONG if wrong is not None])
@pytest.mark.parametrize("name", WAYS)
def test_a_method_refuses_what_is_no_number(name, wrong):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"{name.removesuffix('s')}s?="):
        WAYS[name](wrong)


@pytest.mark.parametrize("part", ["parameter", "buffer"])
@pytest.mark.parametrize("door", ["SelectiveLoader", "SelectiveStep", "advise"])
def test_a_model_on_the_meta_device_is_refused_before_training(door, part):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    if part == "parameter":
        model[0].to("meta")
    else:
        model[1].running_mean = torch.zeros(2, device="meta")
    with pytest.raises(sb.ConfigurationError, match=r"meta device.*to_empty\(device=") as refused:
        call(door, model=model)
    assert ("'0.weight'" if part == "parameter" else "'1.running_mean'") in str(refused.value)


@pytest.mark.parametrize("door", ["SelectiveLoader", "advise"])
def test_a_device_that_overrides_the_models_own_does_not_help_a_model_on_meta(door):
    with pytest.raises(sb.ConfigurationError, match="meta device"):
        call(door, model=nn.Linear(3, 2, device="meta"), device="cpu")


def test_a_batch_may_be_padded_with_any_number():
    pad = {"0": -math.inf, "1": False, "2": math.nan, "3": np.float32(1)}
    with unhooked():
        call("SelectiveLoader", pad=pad)


@pytest.mark.parametrize(
    "part", [sb.selectors.Percentile(2.0), sb.scorers.Stale(sb.scorers.Forward(), epochs=3)]
)
def test_a_part_is_shown_as_code_that_makes_it(part):
    assert eval(repr(part), vars(sb.selectors) | vars(sb.scorers)) == part
