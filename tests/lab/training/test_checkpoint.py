"""A checkpoint is whole, of this very run, and no code; else it is refused."""

import hashlib
import io
import os
import pickle
import warnings
from pathlib import Path

import pytest
import torch

import selective_backprop as sb
from selective_backprop.lab.training.checkpoint import Checkpoints

IDENTITY = {"arm": "stale-sb", "config": {"epochs": 3.0, "recipe": {"lr": 0.1}}, "probes": []}


@pytest.fixture
def kept(tmp_path):
    return Checkpoints(tmp_path / "run.jsonl", IDENTITY)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_loaded(kept):
    assert kept.load() is None
    state = {
        "weights": torch.arange(3.0),
        "points": [{"error": 1.5}],
        "none": None,
        "pair": (1, "a"),
    }
    kept.save(state)
    found = kept.load()
    assert torch.equal(found.pop("weights"), state.pop("weights"))
    assert found == state


def test_the_last_and_the_one_before_are_there_and_no_other(kept, tmp_path):
    for number in range(4):
        kept.save({"number": number})
    assert files(tmp_path) == ["run.checkpoint", "run.checkpoint.before"]
    assert kept.load() == {"number": 3}
    kept.path.unlink()
    assert kept.load() == {"number": 2}
    kept.clear()
    assert files(tmp_path) == []


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGE = {
    "empty": (lambda content: b"", "no checkpoint, or truncated"),
    "cut in its head": (lambda content: content[:50], "no checkpoint, or truncated"),
    "cut": (lambda content: content[:-1], "damaged: its checksum does not fit"),
    "one bit": (lambda content: flipped(content, 500), "damaged: its checksum does not fit"),
    "longer": (lambda content: content + b"more", "damaged: its checksum does not fit"),
    "another file": (lambda content: b"PK" + content, "no checkpoint, or truncated"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_one_is_refused_and_the_one_before_it_used(kept, kind):
    damage, words = DAMAGE[kind]
    for number in range(2):
        kept.save({"number": number})
    kept.path.write_bytes(damage(kept.path.read_bytes()))
    with pytest.warns(sb.SelectionWarning, match=f"{words}.*; the one before it is used"):
        assert kept.load() == {"number": 0}
    kept.before.write_bytes(damage(kept.before.read_bytes()))
    with pytest.warns(sb.SelectionWarning, match=f"{words}.*; there is no other"):
        assert kept.load() is None


class Harmful:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def test_code_is_never_run_whatever_checksum_it_comes_with(kept, tmp_path):
    kept.save({"number": 0})
    kept.save({"number": 1})
    file = io.BytesIO()
    torch.save(
        {"identity": IDENTITY, "state": Harmful(tmp_path / "trace")}, file, pickle_module=pickle
    )
    digest = hashlib.sha256(file.getvalue()).hexdigest().encode()
    magic = kept.path.read_bytes().split(b"\n")[0]
    kept.path.write_bytes(magic + b"\n" + digest + b"\n" + file.getvalue())
    with pytest.warns(sb.SelectionWarning, match="something else than tensors, numbers and text"):
        assert kept.load() == {"number": 0}
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (IDENTITY | {"arm": "kath18"}, "arm is 'stale-sb' there and 'kath18' here"),
        (
            IDENTITY | {"config": {"epochs": 3.0, "recipe": {"lr": 0.2}}},
            "config.recipe.lr is 0.1 there and 0.2 here",
        ),
        (IDENTITY | {"data": {"examples": 5}}, "data.examples is None there and 5 here"),
        (IDENTITY | {"format": 99}, "format is 2 there and 99 here"),
    ],
)
def test_one_of_another_run_or_version_is_refused_with_the_difference(
    kept, tmp_path, other, difference
):
    kept.save({})
    with pytest.raises(sb.RecordError, match=f"of another run: {difference}"):
        Checkpoints(tmp_path / "run.jsonl", other).load()
    assert kept.load() == {}


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
        with pytest.raises(sb.RecordError, match="cannot be written: No space left on device"):
            kept.save({"number": 2})
    assert files(tmp_path) == ["run.checkpoint", "run.checkpoint.before"]
    assert kept.load() == {"number": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept.save({"number": 3})
    assert kept.load() == {"number": 3}


def test_it_is_on_the_disk_before_it_takes_its_place(kept, monkeypatch):
    happened = []
    replace, fsync = Path.replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: happened.append("synced") or fsync(number))
    monkeypatch.setattr(
        Path, "replace", lambda path, to: happened.append("renamed") or replace(path, to)
    )
    kept.save({})
    assert happened == ["synced", "renamed", "synced"]
