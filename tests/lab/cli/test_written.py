"""What commands write into a folder that somebody else made: nothing through its links."""

import json
import shutil

import numpy as np
import pytest
from fixture_command import run_command

from selective_backprop_lab.records.example_history import examples_path

TRAIN = "train --limit 64 --epochs 1 --evaluations 1 --strategy traditional --out out"


def files_of(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*.*")}


@pytest.mark.parametrize("line", ["audit out --top 9 --table out/all.csv", TRAIN])
def test_a_link_in_the_place_of_a_file_leads_no_command_outside(copy, tmp_path, line):
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
        if number % 2 and line != TRAIN:  # other links lead nowhere; a linked record is read
            (outside / str(number)).write_text("precious")
    there = sorted(outside.iterdir())
    assert run_command(line, copy).status == 0
    assert sorted(outside.iterdir()) == there
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


ODD = "\x1b[31m\u202e\n\r\t\x07\x9b\u2028\x00\x7f\u200f"


def spoil(value, keys=()):
    """Add control characters to all texts, and to keys that no schema names."""
    if isinstance(value, dict):
        return {f"{k}{ODD}" if keys else k: spoil(v, k == "versions") for k, v in value.items()}
    if isinstance(value, list):
        return [spoil(each) for each in value]
    return value + ODD if isinstance(value, str) else value


def test_no_control_character_of_a_record_reaches_the_terminal_or_a_page(copy):
    folder = copy / "out"
    for record in folder.glob("*.jsonl"):
        header, *rest = map(json.loads, record.read_text().splitlines())
        header |= {k: spoil(v, k == "versions") for k, v in header.items() if k != "kind"}
        header["config"] |= {"schedules_follow": ODD, "pretrained": ODD, f"odd{ODD}": ODD}
        record.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *rest)))
        with np.load(examples_path(record)) as file:
            history = dict(file)
        history["class_name"] = np.array([f"{each}{ODD}." for each in history["class_name"]])
        np.savez(examples_path(record), **history)
    next(folder.glob("*.npz")).rename(folder / f"lone{ODD[:4]}.examples.npz")
    (folder / f"bad{ODD[:8]}.jsonl").write_text("to do\n")
    (folder / "report.html").unlink()
    (folder / "table.md").unlink()
    for line in ("report out", "audit out --top 99", "pack out", f"report 'no{ODD[:6]}where'"):
        outcome = run_command(line, copy)
        assert outcome.status == 2 * ("where" in line)
        for text in (outcome.out, outcome.err):
            assert all(each.isprintable() for each in text.split("\n"))
        assert all(line.startswith(("warning: ", "error: ")) for line in outcome.err.splitlines())
    for name in ("table.md", "report.html", "audit/suspects.csv", "audit/suspects.html"):
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        assert lines
        assert all(each.replace("\u00a0", " ").isprintable() for each in lines)
