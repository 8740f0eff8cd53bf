"""Where what is made of records cannot be written."""

import pytest
from fixture_command import run_command
from fixture_runs import fixture_header, fixture_point

from selective_backprop.lab.cli import write as presenting
from selective_backprop.lab.records.writer import RunWriter


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a record, of which no figure is drawn, which takes a second."""
    monkeypatch.setattr(presenting, "draw_comparison", lambda runs, path: None)
    with RunWriter.open(tmp_path / "out", fixture_header()) as writer:
        writer.point(fixture_point())
        writer.end({})
    return tmp_path


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


def test_a_file_in_the_place_of_a_folder_is_named(folder):
    (folder / "taken").write_text("something else")
    for place in ("taken", "taken/page.html"):
        outcome = run_command(f"report out -o {place}", folder)
        assert outcome.status == 2
        assert outcome.err.startswith("error: --out taken: cannot be made a folder")
