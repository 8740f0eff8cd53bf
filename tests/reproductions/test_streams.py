"""The stage of streams, on a small made-up stream that repeats most of its rows."""

import io
import json
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from reproductions import streams
from reproductions.training import Order

STREAM = streams.Stream("Made up, 400", "kdd99", 400, rates=(0.1, 0.2))
HOW = {"device": "cpu", "threads": 1, "jobs": 1, "root": None, "command": "typed"}


@pytest.fixture
def made_up(monkeypatch):
    """Put 60 easy rows, of which 40 come 50 times, in place of the published connections."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    inputs = torch.randn(60, 118, generator=generator) + 4 * torch.eye(118)[labels]
    rows = torch.cat([torch.arange(40).repeat(50), torch.arange(40, 60)])
    found = {"train_inputs": inputs[rows], "train_labels": labels[rows], "tested": rows >= 40}
    splits = SimpleNamespace(**found, test_inputs=inputs[:9], test_labels=labels[:9])
    monkeypatch.setattr(streams, "read", lambda data, root: splits)


def run(folder, **more):
    said = io.StringIO()
    order = Order(out=folder, **HOW, **more)
    streams.run_streams(Console(file=said, width=300), {STREAM.name: STREAM}, order)
    return said.getvalue()


def test_each_strategy_trains_up_to_the_cost_and_what_is_on_record_is_not_done_again(
    made_up, tmp_path, monkeypatch
):
    said = run(tmp_path, seeds=3)
    file = tmp_path / "made-up-400.jsonl"
    runs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    judged = {(each["arm"], each["seed"]): each for each in runs if each["seed"] >= 1600}
    assert judged.keys() == {(arm, seed) for arm in streams.ARMS for seed in (1600, 1601, 1602)}
    for (arm, _), each in judged.items():
        assert each["cost"] == pytest.approx(each["kept"] + each["scored"] / 3)
        # The whole stream is read for its 56 distinct rows. Else the last batch exceeds the cost.
        assert (each["cost"] == 56) if "unique" in arm else (400 <= each["cost"] < 528)
    assert judged["random", 1600]["rows"] > 2 * judged["traditional", 1600]["rows"]
    monkeypatch.setattr(streams, "train", None)
    assert run(tmp_path, seeds=3) == run(tmp_path, seeds=1, trains=False) == said


def test_deformed_images_differ_and_stay_in_place():
    images = torch.zeros(50, 1, 28, 28)
    images[:, :, 10:18, 10:18] = 1.0
    found = streams.deformed(images, torch.Generator().manual_seed(0))
    assert len(found.flatten(1).unique(dim=0)) == 50
    assert float(found[:, :, 12:16, 12:16].mean()) > 0.6
    assert float(found[:, :, :4].mean() + found[:, :, 24:].mean()) < 0.01
