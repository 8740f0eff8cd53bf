"""A checkpoint is whole, of this very run, and no code; else it is refused."""

import io
import os
import pickle
from pathlib import Path

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab.training.resumable_run import FORMAT, Checkpoints

IDENTITY = {"arm": "stale-sb", "config": {"epochs": 3.0, "recipe": {"lr": 0.1}}, "probes": []}


@pytest.fixture
def kept(tmp_path):
    return Checkpoints(tmp_path / "run.jsonl", IDENTITY)


def state_of(kept):
    found = kept.load()
    return None if found is None else found[1]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_and_the_one_before_are_there_and_no_other(kept, tmp_path):
    for number in range(4):
        kept.save({"number": number})
    assert files(tmp_path) == ["run.checkpoint", "run.checkpoint.before"]
    assert state_of(kept) == {"number": 3}
    kept.path.unlink()
    assert state_of(kept) == {"number": 2}
    kept.clear()
    assert files(tmp_path) == []


DAMAGE = {
    "empty": lambda content: b"",
    "cut in its head": lambda content: content[:50],
    "cut": lambda content: content[:-1],
    "no zip": lambda content: b"PK" + content[2:][::-1],
    "another number": lambda content: content.replace(NUMBERS, NUMBERS[::-1]),
}
NUMBERS = bytes(range(200))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_one_is_refused_by_name_and_the_one_before_it_used(kept, damage):
    state = {"numbers": torch.tensor(list(NUMBERS), dtype=torch.uint8)}
    kept.save({"number": 0})
    kept.save(state)
    kept.path.write_bytes(damage(kept.path.read_bytes()))
    with pytest.warns(sb.SelectionWarning, match=r"run\.checkpoint is damaged.*the one before it"):
        assert state_of(kept) == {"number": 0}
    kept.path.unlink()
    kept.save(state)
    kept.path.rename(kept.before)
    kept.before.write_bytes(damage(kept.before.read_bytes()))
    with pytest.warns(sb.SelectionWarning, match=r"checkpoint\.before is damaged.*starts again"):
        assert kept.load() is None


class Harmful:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def test_code_is_never_run_however_whole_it_is(kept, tmp_path):
    kept.save({"number": 0})
    kept.save({"number": 1})
    file = io.BytesIO()
    torch.save(
        {"identity": IDENTITY, "state": Harmful(tmp_path / "trace")}, file, pickle_module=pickle
    )
    kept.path.write_bytes(file.getvalue())
    with pytest.warns(sb.SelectionWarning, match="else than tensors"):
        assert state_of(kept) == {"number": 0}
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (
            IDENTITY | {"config": {"epochs": 3.0, "recipe": {"lr": 0.2}}},
            "config.recipe.lr is 0.1 there and 0.2 here",
        ),
        (IDENTITY | {"format": 99}, f"format is {FORMAT} there and 99 here"),
    ],
)
def test_one_of_another_run_is_refused_with_the_difference(kept, tmp_path, other, difference):
    kept.save({})
    with pytest.raises(sb.RecordError, match=f"of another run: {difference}"):
        Checkpoints(tmp_path / "run.jsonl", other).load()
    assert state_of(kept) == {}


@pytest.mark.parametrize("place", ["os.fsync", "pathlib.Path.replace"])
def test_a_full_disk_costs_the_checkpoint_that_was_being_written_and_no_other(
    kept, tmp_path, monkeypatch, place
):
    for number in range(2):
        kept.save({"number": number})

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(place, full)
        with pytest.raises(OSError, match="No space left on device"):
            kept.save({"number": 2})
    assert files(tmp_path) == ["run.checkpoint", "run.checkpoint.before"]
    assert state_of(kept) == {"number": 1}
    kept.save({"number": 3})
    assert state_of(kept) == {"number": 3}
