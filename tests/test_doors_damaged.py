"""A damaged state is refused by the path of what is wrong, and the loader goes on without it."""

import copy
from typing import Any

import pytest
import torch
from fixture_damage import damages, named, put, walk
from fixture_doors import bits, same_tensors, selective
from fixture_training import STRATEGIES, Training, make_optimizer, outcome
from torch import nn

import selective_backprop as sb

ROWS = ("position", "late", "midway", "parts")
ALL = ("version", "built", "seed", "next_epoch", "held", "skipped", "stats", *ROWS)
PLACES = {"traditional": ALL, "random, interludes": ROWS, "selective": ROWS, "auto": ROWS}
KINDS = {
    **{
        name: STRATEGIES[name]
        for name in (
            "traditional",
            "random",
            "random, interludes",
            "selective",
            "stale, recorded",
            "predicted",
            "recorded, rescored",
            "kath18",
        )
    },
    "auto": sb.auto(),
    "proxy, Adam": sb.proxy_sb(lambda: nn.Linear(2, 3), torch.optim.Adam, rate=1 / 2),
    "synced": selective(
        1 / 2, scorer=sb.Synced(sb.Forward(), every=2, check=sb.Check(2, least=0.0))
    ),
    "int8": selective(1 / 2, scorer=sb.Int8(sb.Forward(), check=sb.Check(3, least=0.0))),
    "early exit": selective(
        1 / 2,
        scorer=sb.EarlyExit(
            "layers", lambda: nn.Linear(8, 3), make_optimizer, sb.Check(9, least=0.0)
        ),
    ),
}
CONTENT = ("model", "head", "copy")  # weights of the user's, of which any is as good as another


def is_row(path: tuple) -> bool:
    """Whether it is something in a batch that waits, or its rows' indices."""
    return path[0] in ("late", "held") and len(path) > 3 and path[3] in (0, 2)


def is_content(path: tuple) -> bool:
    """Whether a state may hold there what no loader can judge: weights, rates, features, keys."""
    keys = path[0] == "position" and path[-1] == 0
    return keys or is_row(path) or any(name in path for name in ("param_groups", *CONTENT))


def standing(door: sb.SelectiveLoader) -> tuple:
    return bits(door.state_dict()), door.stats, door.progress


def check_refused(door: sb.SelectiveLoader, damaged: Any, path: tuple, before: tuple) -> None:
    """Load a state that is refused, and see that it says where, and that nothing has changed."""
    with pytest.raises(sb.ConfigurationError) as refusal:
        door.load_state_dict(damaged)
    assert standing(door) == before
    said = str(refusal.value)
    if path[0] in ("version", "built") or "generators" in said or "history of" in said:
        return
    # what is in a model or a batch is refused by them, as a whole
    within = is_row(path) or any(name in path for name in ("optimizer", *CONTENT))
    ends = range(1, len(path) + 1) if within else (len(path) - 1, len(path))
    assert any(named(path[:end]) in said for end in ends), said


def damage_all(state: Any, asked: sb.SelectiveLoader, third: Training, where: Any) -> None:
    """Damage a state in every place of some, and see that it is refused or can be trained on."""
    before, clean, intact = standing(asked), bits(state), copy.deepcopy(third.model.state_dict())
    for path, value in walk(state):
        if path[0] not in where:
            continue
        for damage in damages(value):
            damaged = put(state, path, damage)
            if bits(damaged) == clean:
                continue
            try:
                third.door.load_state_dict(damaged)
            except sb.ConfigurationError:
                check_refused(asked, damaged, path, before)
                continue
            if not is_content(path):
                train_on(third, f"{path}: {damage}")
                third.model.load_state_dict(intact)


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
        saves.append(asked.door.state_dict())
        if len(saves) == 1:
            with torch.random.fork_rng():
                damage_all(saves[-1], asked.door, third, PLACES.get(name, ("parts",)))

    torch.manual_seed(0)
    expected = [other.epoch() for _ in range(3)]
    torch.manual_seed(0)
    assert [asked.epoch(), asked.epoch(after=ask), asked.epoch()] == expected
    assert saves
    found, wanted = outcome(asked), outcome(other)
    assert same_tensors(found[0], wanted[0])
    assert found[1:] == wanted[1:]
