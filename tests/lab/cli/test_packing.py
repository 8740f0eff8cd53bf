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
            writer.add(fixture_point())
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


@pytest.fixture
def full():
    """No file can be written, as on a full disk: the system itself refuses more than 0 bytes."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_a_pack_cannot_be_written_the_records_stay_and_one_line_says_so(folder, full):
    before = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    outcome = run_command("pack out", folder)
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: out/{PACK} cannot be written: File too large. ")
    assert outcome.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in (folder / "out").iterdir()} == before


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_file_in_the_place_of_a_folder_is_named_in_one_line(folder, place):
    assert run_command("pack out", folder).status == 0
    (folder / "taken").write_text("mine")
    for line in (f"unpack out {place}", f"pack {place}"):
        outcome = run_command(line, folder)
        assert (outcome.status, outcome.err.count("\n")) == (2, 1)
        assert outcome.err.startswith(f"error: {place}")
    assert (folder / "taken").read_text() == "mine"


def test_what_is_trained_where_there_is_a_pack_joins_it(folder):
    assert run_command("pack out", folder).status == 0
    train = "train --limit 64 --epochs 1 --evaluations 1 --strategy traditional --out out"
    assert run_command(train, folder).status == 0
    assert not list((folder / "out").glob("*.jsonl"))
    assert len(read_runs(folder / "out")) == 3
    assert "recorded already" in run_command(train, folder).text
