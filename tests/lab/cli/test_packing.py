"""Packing records and unpacking them, as they are typed."""

import pytest
from fixture_command import run_command
from fixture_runs import fixture_header, fixture_point

from selective_backprop_lab.records.pack import PACK
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.records.writer import RunWriter


@pytest.fixture
def folder(tmp_path):
    for seed in range(2):
        with RunWriter.open(tmp_path / "out", fixture_header(seed=seed)) as writer:
            writer.point(fixture_point())
            writer.end({})
    return tmp_path


def test_records_are_packed_and_unpacked_again(folder):
    before = read_runs(folder / "out")
    packed = run_command("pack out", folder)
    assert (packed.status, packed.err) == (0, "")
    assert "2 records" in packed.out
    assert [path.name for path in (folder / "out").iterdir()] == [PACK]
    assert read_runs(folder / "out") == before
    assert run_command("unpack out elsewhere", folder).status == 0
    assert [run.points for run in read_runs(folder / "elsewhere")] == [run.points for run in before]
    again = run_command(f"unpack out/{PACK} elsewhere", folder)
    assert again.status == 2
    assert "exists already" in again.err


def test_what_is_trained_where_there_is_a_pack_joins_it(folder):
    assert run_command("pack out", folder).status == 0
    train = "train --limit 64 --epochs 1 --evaluations 1 --strategy traditional --out out"
    assert run_command(train, folder).status == 0
    assert not list((folder / "out").glob("*.jsonl"))
    assert len(read_runs(folder / "out")) == 3
    assert "recorded already" in run_command(train, folder).text


def test_a_stray_file_does_not_stop_packing_nor_training(folder):
    (folder / "out" / "notes.jsonl").write_text("to do\n")
    packed = run_command("pack out", folder)
    assert packed.status == 0
    assert "2 records" in packed.out
    assert "warning: out/notes.jsonl, line 1: not a line of a record" in packed.err
    train = "train --limit 64 --epochs 1 --evaluations 1 --strategy traditional --out out"
    assert run_command(train, folder).status == 0
    assert [path.name for path in (folder / "out").glob("*.jsonl")] == ["notes.jsonl"]
