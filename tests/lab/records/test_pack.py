"""Records in one compressed file."""

import lzma
import re
from contextlib import contextmanager

import pytest
from fixture_runs import fixture_header
from fixture_runs import fixture_record as record

import selective_backprop as sb
from selective_backprop_lab.records import schema
from selective_backprop_lab.records.lines import PACK, encode, pack
from selective_backprop_lab.records.schema import (
    pack_finished,
    read_run,
    read_runs,
    record_path,
    record_paths,
)


@pytest.fixture
def packed(tmp_path):
    files = [record(tmp_path, seed=seed) for seed in range(3)]
    contents = {file.name: file.read_bytes() for file in files}
    pack(files)
    return tmp_path, contents


def test_a_pack_grows_and_a_run_again_takes_the_place_of_the_old(packed):
    folder, _ = packed
    with pytest.raises(sb.RecordError, match="already holds this run"):
        record(folder, seed=1)
    again = record(folder, seed=1, error=3.0, replace=True)
    assert read_run(again).points[-1].test_error == 3.0
    pack([again, record(folder, seed=7)])
    assert [run.header.seed for run in read_runs(folder)] == [0, 1, 2, 7]
    assert read_run(again).points[-1].test_error == 3.0


def test_a_pack_that_is_damaged_is_named_and_left_alone(packed):
    folder, _ = packed
    path = folder / PACK
    path.write_bytes(path.read_bytes()[:-20])
    fresh = folder / "elsewhere"
    with pytest.raises(sb.RecordError, match=PACK):
        read_runs(folder)
    loose = record(fresh).rename(folder / record_path(folder, fixture_header(seed=9)).name)
    before = path.read_bytes()
    with pytest.raises(sb.RecordError, match=PACK):
        pack([loose])
    assert loose.exists()
    assert path.read_bytes() == before


def test_only_what_is_finished_is_packed(tmp_path):
    record(tmp_path, seed=0)
    unfinished = record(tmp_path, seed=1, finished=False)
    assert pack_finished(tmp_path) == (1, [])
    assert unfinished.exists()
    assert [run.finished for run in read_runs(tmp_path)] == [True, False]
    assert pack_finished(tmp_path) == (0, [])


def test_a_packed_record_that_is_replaced_on_request_is_kept_aside(packed):
    folder, contents = packed
    again = record(folder, seed=1, error=3.0, replace=True)
    assert pack_finished(folder) == (1, [])
    assert read_run(again).points[-1].test_error == 3.0
    aside = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != PACK}
    assert aside == {f"{again.name}.replaced": contents[again.name]}


def test_records_of_other_names_and_files_that_are_none_stay_and_are_named(tmp_path):
    usual = record(tmp_path)
    copy, notes = tmp_path / "copy.jsonl", tmp_path / "notes.jsonl"
    copy.write_bytes(usual.read_bytes())
    notes.write_text("to do\n")
    count, problems = pack_finished(tmp_path)
    assert count == 1
    assert [path.exists() for path in (usual, copy, notes)] == [False, True, True]
    assert f"{copy}: a pack would keep this record as {usual.name}" in problems[0]
    assert problems[1].startswith(f"{notes}, line 1: not a line of a record")


def test_files_that_another_process_packs_meanwhile_are_not_looked_for(tmp_path, monkeypatch):
    record(tmp_path)
    lock = schema.locked

    @contextmanager
    def late(folder):
        pack(record_paths(folder))  # by the other process, which holds the lock before
        with lock(folder):
            yield

    monkeypatch.setattr(schema, "locked", late)
    assert pack_finished(tmp_path) == (0, [])
    assert len(read_runs(tmp_path)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": "/../../beside"},
        {"seed": True},
        {"strategy": "top-k"},
        {"strategy": {"name": ["/", "beside"]}},
    ],
)
def test_a_name_of_anything_but_text_and_a_seed_reaches_no_path(tmp_path, changes):
    source = tmp_path / PACK
    lines = [
        encode({"kind": "run", "identity": {"strategy": {"name": "a"}, "seed": 0} | each})
        for each in ({}, changes)
    ]
    source.write_bytes(lzma.compress(b"".join(lines)))
    with pytest.raises(sb.RecordError, match=rf"{PACK}, line 2.*identity\.{min(changes)}"):
        read_runs(tmp_path)
    assert [*tmp_path.iterdir()] == [source]


def test_a_small_file_that_would_fill_the_memory_is_refused(tmp_path):
    quarter_of_a_gibibyte = lzma.compress(bytes(2**22), preset=0) * 64
    (tmp_path / PACK).write_bytes(quarter_of_a_gibibyte + lzma.compress(b"\n"))
    with pytest.raises(sb.RecordError, match=f"{re.escape(PACK)}: holds more than 256 MiB"):
        read_runs(tmp_path)


def test_no_pack_is_written_that_would_be_too_large_to_be_read(tmp_path):
    large = tmp_path / "large.jsonl"
    with large.open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(sb.RecordError, match=f"{re.escape(PACK)}: has no room"):
        pack([large])
    assert [*tmp_path.iterdir()] == [large]
