"""A damaged or foreign state is refused with the path of what is wrong, and changes nothing."""

import copy
from itertools import islice
from typing import Any

import pytest
import torch
from fixture_damage import REMOVED, damages, named, put, walk
from fixture_loaders import Numbered, bits, fixture_data, select, selective
from fixture_pipelined import Ahead
from fixture_training import STRATEGIES, Training, make_optimizer, make_small_model, outcome
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

import selective_backprop as sb

POSITION = ("position", "mid_epoch", "stream")
KINDS = {
    **{
        name: STRATEGIES[name]
        for name in (
            *("traditional", "random", "selective", "stale, spread"),
            *("predicted", "recorded, rescored", "kath18"),
        )
    },
    "auto": sb.auto(),
    "proxy, Adam": sb.proxy_sb(lambda: nn.Linear(2, 3), torch.optim.Adam, rate=1 / 2),
    "pipelined": selective(
        1 / 2,
        scorer=Ahead(sb.scorers.Forward(), every=2, check=sb.experimental.Check(2, least=0.0)),
    ),
}
# Of the user's: any weights are as good as others, and an optimiser checks its state as it steps.
CONTENT = ("model", "copy", "optimizer")


def standing(loader: sb.SelectiveLoader) -> tuple:
    return bits(loader.state_dict()), loader.stats, loader.progress


def is_content(path: tuple) -> bool:
    """Whether a state may hold there what no loader can judge: weights, rates."""
    return any(name in path for name in CONTENT)


def check_words(said: str, path: tuple) -> None:
    """See that a refusal says where in the state it is."""
    if path[0] in ("version", "built") or "history of" in said:
        return
    # what is in a model is refused by it, as a whole; so are waiting rows
    within = any(name in path for name in (*CONTENT, *POSITION))
    ends = range(len(path) > 1, len(path) + 1) if within else (len(path) - 1, len(path))
    assert any(named(path[:end]) in said for end in ends), said


def damage_all(state: Any, asked: sb.SelectiveLoader, third: Training, where: Any) -> None:
    """Damage a state in every place of some, and see that it is refused or can be trained on."""
    before, intact = standing(asked), copy.deepcopy(third.model.state_dict())
    for path, value in walk(state):
        if path[0] not in where:
            continue
        refused = None
        # What no loader can judge is of one kind, of which every third damage is enough.
        for damage in islice(damages(value), None, None, 3 if is_content(path) else 1):
            if damage is not REMOVED and bits(damage) == bits(value):
                continue
            damaged = put(state, path, damage)
            try:
                third.loader.load_state_dict(damaged)
            except sb.ConfigurationError as refusal:
                check_words(str(refusal), path)
                refused = damaged
                continue
            if not is_content(path):
                train_on(third, f"{path}: {damage}")
                third.model.load_state_dict(intact)
        if refused is not None:
            with pytest.raises(sb.ConfigurationError):
                asked.load_state_dict(refused)
            assert standing(asked) == before, path


def train_on(training: Training, what: str) -> None:
    try:
        training.epoch(3)
    except Exception as error:
        if "does not draw these again" not in str(error):  # the order's digest, or what it is of
            error.add_note(what)
            raise


@pytest.mark.parametrize("name", KINDS)
def test_whatever_is_wrong_is_refused_and_the_loader_trains_on_as_if_never_asked(name):
    torch.manual_seed(0)
    asked, other, third = (Training(KINDS[name]) for _ in range(3))
    saves: list[Any] = []

    def ask() -> None:
        saves.append(asked.loader.state_dict())
        if len(saves) == 1:
            with torch.random.fork_rng():
                where = ("version", "built") if name == "selective" else ()
                damage_all(saves[-1], asked.loader, third, (*where, "parts", *POSITION))

    torch.manual_seed(0)
    expected = [other.epoch() for _ in range(3)]
    torch.manual_seed(0)
    assert [asked.epoch(), asked.epoch(after=ask), asked.epoch()] == expected
    assert saves
    assert outcome(asked) == outcome(other)


def test_a_part_that_fails_half_way_and_those_loaded_before_are_put_back():
    proxy = selective(1 / 2, scorer=sb.scorers.Proxy(make_small_model, make_optimizer))
    asked, other = Training(proxy), Training(proxy, seed=2)
    for training in (asked, other):
        training.epoch()
    before = bits(asked.loader.state_dict())
    state = copy.deepcopy(other.loader.state_dict())
    del state["parts"]["scorer"]["optimizer"]["param_groups"]
    with pytest.raises(sb.ConfigurationError, match=r'\["scorer"\]\["optimizer"\] cannot'):
        asked.loader.load_state_dict(state)
    assert bits(asked.loader.state_dict()) == before


def built(examples: int = 40, strategy: sb.Strategy | None = None, **options: Any) -> Any:
    return select(DataLoader(Numbered(examples), 6), strategy or selective(), **options)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (lambda: built(strategy=selective(1 / 3)), r"strategy=Strategy\(.*beta=1\.0.*beta=2"),
        (lambda: built(batch_size=4), "batch_size=6.*batch_size=4"),
        (lambda: built(examples=50), "examples=40.*examples=50"),
        (
            lambda: select(DataLoader(Numbered(40), 6, drop_last=True), selective()),
            "drop_last=False.*drop_last=True",
        ),
    ],
)
def test_a_state_of_another_loader_is_refused_with_the_difference_and_changes_nothing(
    other, difference
):
    loader = other()
    list(loader)
    before = repr(loader.state_dict())
    with pytest.raises(sb.ConfigurationError, match=difference):
        loader.load_state_dict(built().state_dict())
    assert repr(loader.state_dict()) == before


def test_a_state_of_another_version_or_with_other_generators_is_refused():
    loader = built()
    with pytest.raises(sb.ConfigurationError, match="version 0"):
        loader.load_state_dict(loader.state_dict() | {"version": 0})
    other = Training(selective(1 / 2), sampler=RandomSampler(fixture_data()))
    with pytest.raises(sb.ConfigurationError, match=r"generators=1.*generators=0"):
        other.loader.load_state_dict(Training(selective(1 / 2)).loader.state_dict())
