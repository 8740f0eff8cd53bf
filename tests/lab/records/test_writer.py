import os
from contextlib import closing

import pytest
from fixture_runs import fixture_header, fixture_point

import selective_backprop as sb
from selective_backprop_lab.records.schema import read_run, read_runs
from selective_backprop_lab.records.writer import RunWriter

HEADER = fixture_header()


def record(folder, points, *, end, **options):
    with closing(RunWriter.open(folder, HEADER, **options)) as writer:
        for point in points:
            writer.add(point)
        if end:
            writer.end({"peak_memory": 1.5})
    return writer.path


def test_every_line_is_on_the_disk_when_the_writer_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with closing(RunWriter.open(tmp_path, HEADER)) as writer:
        for number in range(3):
            before = len(synced)
            writer.add(fixture_point())
            assert len(synced) == before + 1
            assert len(read_run(writer.path).points) == number + 1


def test_a_finished_record_is_not_overwritten(tmp_path):
    path = record(tmp_path, [fixture_point()], end=True)
    before = path.read_bytes()
    with pytest.raises(sb.RecordError, match="already holds this run, finished"):
        RunWriter.open(tmp_path, HEADER)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_unfinished_records_make_room_and_are_all_kept(tmp_path):
    contents = []
    for count in range(3):
        path = record(tmp_path, [fixture_point()] * count, end=False)
        contents.append(path.read_bytes())
    path = record(tmp_path, [], end=True)
    kept = [path.with_name(path.name + suffix) for suffix in (".partial", ".partial2", ".partial3")]
    assert [file.read_bytes() for file in kept] == contents
    assert [run.finished for run in read_runs(tmp_path)] == [True]


def test_a_record_never_exists_without_its_header(tmp_path, monkeypatch):
    def die(*_):
        raise OSError("died")

    # The header is written, but the machine dies before the file has its name.
    monkeypatch.setattr("pathlib.Path.replace", die)
    with pytest.raises(OSError, match="died"):
        RunWriter.open(tmp_path, HEADER)
    monkeypatch.undo()
    assert read_runs(tmp_path) == []
    assert read_run(record(tmp_path, [], end=True)).finished


def test_a_full_disk_leaves_no_half_line_in_front_of_the_next(tmp_path, monkeypatch):
    with closing(RunWriter.open(tmp_path, HEADER)) as writer:

        def fail(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space"):
            writer.add(fixture_point(0.25))
        monkeypatch.undo()
        writer.add(fixture_point(0.5))
    assert read_run(writer.path).points == (fixture_point(0.5),)
