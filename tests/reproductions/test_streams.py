"""The stage of streams, on a small made-up stream that repeats most of its rows."""

import json
from types import SimpleNamespace

import pytest
import torch
from fixture_papers import ORDER, Screen

from reproductions import streams
from reproductions.training import Order

STREAM = streams.Stream("Made up, 400", "kdd99", 400, rates=(0.1, 0.2))


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
    screen = Screen(300)
    streams.run_streams(screen, {STREAM.name: STREAM}, Order(out=folder, **ORDER | more))
    return screen.text


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
        # The whole stream is read for its 56 distinct rows, of which `auto` scores the first batch.
        # Otherwise the last batch exceeds the cost.
        whole = {"unique": 56, "unique+auto": pytest.approx(56 * 4 / 3)}
        assert each["cost"] == whole[arm] if arm in whole else 400 <= each["cost"] < 528
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
