"""A damaged state is refused by the path of what is wrong, and the loader goes on without it."""

import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest
import torch
from fixture_damage import REMOVED, damages, named, put, walk
from fixture_loaders import bits, selective
from fixture_pipelined import Ahead
from fixture_training import STRATEGIES, Training, make_optimizer, make_small_model, outcome
from torch import nn

import selective_backprop as sb

NUMBERS = ("version", "built", "seed", "next_epoch", "generators", "stats", "parts")
POSITION = ("position", "mid_epoch", "stream")
KINDS = {
    **{
        name: STRATEGIES[name]
        for name in (
            *("traditional", "random", "selective", "stale, recorded"),
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
CONTENT = ("model", "copy")  # weights of the user's, of which any is as good as another


def standing(loader: sb.SelectiveLoader) -> tuple:
    return bits(loader.state_dict()), loader.stats, loader.progress


def is_content(path: tuple) -> bool:
    """Whether a state may hold there what no loader can judge: weights, rates."""
    return any(name in path for name in ("param_groups", *CONTENT))


def check_words(said: str, path: tuple) -> None:
    """See that a refusal says where in the state it is."""
    if path[0] in ("version", "built") or "history of" in said:
        return
    # what is in a model is refused by it, as a whole; so are waiting rows
    within = any(name in path for name in ("optimizer", *CONTENT, *POSITION))
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
                where = NUMBERS if name == "selective" else ("parts",)
                damage_all(saves[-1], asked.loader, third, (*where, *POSITION))

    torch.manual_seed(0)
    expected = [other.epoch() for _ in range(3)]
    torch.manual_seed(0)
    assert [asked.epoch(), asked.epoch(after=ask), asked.epoch()] == expected
    assert saves
    assert outcome(asked) == outcome(other)


def test_an_epoch_that_is_not_the_next_one_is_refused():
    asked = Training(sb.auto())
    states = []
    asked.epoch(after=lambda: states.append(asked.loader.state_dict()))
    with pytest.raises(sb.ConfigurationError, match=r'\["next_epoch"\]: 0.* 3'):
        asked.loader.load_state_dict(states[1] | {"next_epoch": 3})


@dataclass(frozen=True)
class Careless(sb.selectors.AbstractSelector):
    """Somebody else's selector, which checks nothing and takes its state in one by one."""

    @property
    def terms(self) -> sb.selectors.Terms:
        return sb.selectors.Terms(1 / 2)

    def start(self, context: sb.scorers.Context) -> sb.selectors.RunningSelector:
        return RunningCareless(context)


class RunningCareless(sb.selectors.RunningSelector):
    def __init__(self, context: sb.scorers.Context) -> None:
        self.quota, self.first, self.seen = context.quota, 0, [0]

    def select(self, scores: torch.Tensor, history: Any, generator: Any) -> sb.selectors.Choice:
        self.first = (self.first + 1) % 2
        self.seen[0] += 1
        return sb.selectors.Choice(torch.arange(self.quota(len(scores))) + self.first)

    def state_dict(self) -> dict[str, Any]:
        return {"first": self.first, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.first = state["first"]
        self.seen[:] = state["seen"]


def test_somebody_elses_part_that_fails_half_way_is_put_back():
    strategy = sb.Strategy("careless", sb.scorers.Forward(), Careless())
    torch.manual_seed(0)
    asked, other = Training(strategy), Training(strategy)

    def ask() -> None:
        before, state = bits(asked.loader.state_dict()), copy.deepcopy(asked.loader.state_dict())
        state["parts"]["selector"]["first"] = 7
        del state["parts"]["selector"]["seen"]
        with pytest.raises(sb.ConfigurationError, match=r'"selector".*KeyError: .seen'):
            asked.loader.load_state_dict(state)
        assert bits(asked.loader.state_dict()) == before

    torch.manual_seed(0)
    expected = [other.epoch(), other.epoch()]
    torch.manual_seed(0)
    assert [asked.epoch(after=ask), asked.epoch()] == expected


def test_a_part_that_was_loaded_goes_back_when_a_later_one_is_refused():
    strategy = sb.Strategy(
        "careless", sb.scorers.Proxy(make_small_model, make_optimizer), Careless()
    )
    asked, other = Training(strategy), Training(strategy, seed=2)
    for training in (asked, other):
        training.epoch()
    state = other.loader.state_dict()
    state["parts"]["scorer"]["optimizer"]["state"][0]["momentum_buffer"] = torch.zeros(4)
    before = bits(asked.loader.state_dict())
    with pytest.raises(sb.ConfigurationError, match=r'\["scorer"\]\["optimizer"\] cannot'):
        asked.loader.load_state_dict(state)
    assert bits(asked.loader.state_dict()) == before
