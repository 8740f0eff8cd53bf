"""The command `report`: what is drawn from records, and where it cannot be read or written."""

import re

import pytest
from fixture_command import run_command
from fixture_runs import fixture_header, fixture_point

from selective_backprop_lab.records.example_history import examples_path
from selective_backprop_lab.records.pack import PACK
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.records.writer import RunWriter
from selective_backprop_lab.report import figures

DRAWN = ("table.md", "comparison.png", "report.html")


def test_a_report_is_drawn_from_the_records_alone(copy, untrained):
    before = (copy / "out/table.md").read_bytes()
    for name in DRAWN:
        (copy / "out" / name).unlink()
    assert run_command("report out", copy).status == 0
    assert (copy / "out/table.md").read_bytes() == before
    assert all((copy / "out" / name).stat().st_size > 500 for name in DRAWN)


def test_a_report_goes_elsewhere_if_asked_to(copy):
    before = sorted((copy / "out").iterdir())
    for name in DRAWN:
        (copy / "out" / name).unlink()
    outcome = run_command("report out -o '[a]/:b:'", copy)
    assert (outcome.status, outcome.err) == (0, "")
    assert "Open [a]/:b:/report.html" in outcome.out
    assert sorted(path.name for path in (copy / "[a]/:b:").iterdir()) == sorted(DRAWN)
    assert sorted((copy / "out").iterdir()) == [path for path in before if path.name not in DRAWN]


def test_what_is_wrong_with_a_record_is_said_and_the_rest_is_reported(copy, undrawn):
    spoiled, cut = sorted((copy / "out").glob("selective-backprop-*.jsonl"))
    spoiled.write_bytes(spoiled.read_bytes().replace(b'"cost"', b'"most"', 1))
    cut.write_bytes(cut.read_bytes()[:-9])
    examples_path(next((copy / "out").glob("traditional-seed0-*.jsonl"))).write_bytes(b"half")
    outcome = run_command("report out", copy)
    assert outcome.status == 0
    first, second = outcome.err.splitlines()
    assert first.startswith(f"warning: out/{spoiled.name}, line 2: cost is None")
    assert "damaged" in second
    assert "selective-backprop, seed 1, is unfinished" in outcome.text
    assert "traditional" in (copy / "out/table.md").read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a record, of which no figure is drawn, which takes a second."""
    monkeypatch.setattr(figures, "draw_comparison", lambda runs, path, **_: None)
    with RunWriter.open(tmp_path / "out", fixture_header()) as writer:
        writer.add(fixture_point())
        writer.end({})
    return tmp_path


def test_the_first_lines_say_whether_selection_paid_and_the_last_what_to_do_next(folder):
    for arm, error in (("traditional", 9.0), ("other", 4.0)):
        for seed in range(3):
            header = fixture_header(arm, seed, config={"data": "some", "model": "net", "epochs": 5})
            with RunWriter.open(folder / "two", header) as writer:
                writer.add(fixture_point(error=error + seed / 10))
                writer.end({})
    outcome = run_command("report two", folder)
    assert outcome.status == 0
    said, _, rest = outcome.out.partition("\n\n")
    words = " ".join(said.split())
    assert re.match("On some, plain training ends at .* other gains: .*−5.00 points", words)
    *_, page, todo = rest.splitlines()
    assert page.startswith("Open two/report.html")
    assert todo.startswith("Next: add --budget 2.5")
    assert (folder / "two/table.md").read_text(encoding="utf-8").startswith(words)


@pytest.mark.parametrize(
    ("taken", "place", "said"),
    [
        ("page.html", "page.html", "page.html: Is a directory"),
        ("elsewhere/table.md", "elsewhere", "table.md: Is a directory"),
        ("elsewhere/report.html", "elsewhere", "report.html: Is a directory"),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_named_and_nothing_is_left(folder, taken, place, said):
    (folder / taken).mkdir(parents=True)
    outcome = run_command(f"report out -o {place}", folder)
    assert outcome.status == 2
    assert outcome.err == f"error: --out {place}: cannot be written ({said}); name another\n"
    assert not list(folder.rglob("*.new"))


@pytest.fixture
def two(tmp_path):
    for seed in range(2):
        with RunWriter.open(tmp_path / "out", fixture_header(seed=seed)) as writer:
            writer.add(fixture_point())
            writer.end({})
    return tmp_path


def test_records_are_packed_and_unpacked_again(two):
    before = read_runs(two / "out")
    packed = run_command("pack out", two)
    assert (packed.status, packed.err) == (0, "")
    assert "2 records" in packed.out
    assert [path.name for path in (two / "out").iterdir()] == [PACK]
    assert read_runs(two / "out") == before
    assert run_command("unpack out elsewhere", two).status == 0
    assert [run.points for run in read_runs(two / "elsewhere")] == [run.points for run in before]
    again = run_command(f"unpack out/{PACK} elsewhere", two)
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


def test_where_a_pack_cannot_be_written_the_records_stay_and_one_line_says_so(two, full):
    before = {path.name: path.read_bytes() for path in (two / "out").iterdir()}
    outcome = run_command("pack out", two)
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: out/{PACK} cannot be written: File too large. ")
    assert outcome.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in (two / "out").iterdir()} == before


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_file_in_the_place_of_a_folder_is_named_in_one_line(two, place):
    assert run_command("pack out", two).status == 0
    (two / "taken").write_text("mine")
    for line in (f"unpack out {place}", f"pack {place}"):
        outcome = run_command(line, two)
        assert (outcome.status, outcome.err.count("\n")) == (2, 1)
        assert outcome.err.startswith(f"error: {place}")
    assert (two / "taken").read_text() == "mine"


def test_what_is_trained_where_there_is_a_pack_joins_it(two):
    assert run_command("pack out", two).status == 0
    train = "train --limit 64 --epochs 1 --evaluations 1 --strategy traditional --out out"
    assert run_command(train, two).status == 0
    assert not list((two / "out").glob("*.jsonl"))
    assert len(read_runs(two / "out")) == 3
    assert "recorded already" in run_command(train, two).text
