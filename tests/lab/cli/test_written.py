"""What commands write into a folder that somebody else made: nothing through its links."""

import shutil

import pytest
from fixture_command import run_command

TRAIN = "train --limit 64 --epochs 1 --evaluations 1 --strategy traditional --out out"


def files_of(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*.*")}


@pytest.mark.parametrize(
    ("line", "leads"),
    [
        ("report out", "to a file"),
        ("report out", "nowhere"),
        ("report out -o out/page.html", "to a file"),
        ("audit out --top 9 --table out/all.csv", "to a file"),
        ("audit out --top 9 --table out/all.csv", "nowhere"),
        (f"{TRAIN} --checkpoint-every 0.001", "nowhere"),
    ],
)
def test_a_link_in_the_place_of_a_file_is_replaced_and_leads_no_command_outside(
    copy, tmp_path, line, leads
):
    outside, clean = tmp_path / "outside", tmp_path / "clean"
    shutil.copytree(copy / "out", clean / "out")
    before = files_of(clean)
    assert run_command(line, clean).status == 0
    written = [name for name, time in files_of(clean).items() if before.get(name) != time]
    assert written
    outside.mkdir()
    for number, name in enumerate(written):
        (copy / name).unlink(missing_ok=True)
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).symlink_to(outside / str(number))
        if leads == "to a file":
            (outside / str(number)).write_text("precious")
    there = sorted(outside.iterdir())
    outcome = run_command(line, copy)
    assert (outcome.status, sorted(outside.iterdir())) == (0, there)
    assert {file.read_text() for file in there} <= {"precious"}
    assert not any((copy / name).is_symlink() for name in written)


@pytest.mark.parametrize("name", ["audit", "audit/suspects"])
def test_an_audit_goes_into_no_folder_that_is_a_link(copy, tmp_path, name):
    outside = tmp_path / "outside"
    outside.mkdir()
    (copy / "out" / name).parent.mkdir(exist_ok=True)
    (copy / "out" / name).symlink_to(outside)
    outcome = run_command("audit out --top 9", copy)
    assert (outcome.status, [*outside.iterdir()]) == (2, [])
    assert outcome.err.startswith(f"error: out/{name} is a link")
    assert run_command("audit out --top 9 --out mine", copy).status == 0


def test_a_folder_that_the_user_names_may_be_a_link(copy, tmp_path):
    (tmp_path / "disk").mkdir()
    (copy / "mine").symlink_to(tmp_path / "disk")
    for line in ("audit out --top 9 --out mine", "report out --out mine"):
        assert run_command(line, copy).status == 0
    assert (tmp_path / "disk" / "suspects.csv").exists()
    assert (tmp_path / "disk" / "table.md").exists()


def test_unpacking_writes_through_no_link(copy, tmp_path):
    assert run_command("pack out", copy).status == 0
    assert run_command("unpack out mine", copy).status == 0
    record = next((copy / "mine").glob("*.jsonl"))
    record.unlink()
    record.symlink_to(tmp_path / "outside")
    for each in (copy / "mine").glob("*-seed*"):
        each.is_symlink() or each.unlink()
    outcome = run_command("unpack out mine", copy)
    assert (outcome.status, (tmp_path / "outside").exists()) == (2, False)
    assert f"{record.name} exists already" in outcome.err
