import os
import re
from multiprocessing import get_context
from pathlib import Path

import pytest

from selective_backprop._core.files import replacing


def _write_and_go(path, text):
    with replacing(path) as file:
        file.write(text)


def test_a_process_that_writes_a_file_while_another_does_leaves_both_whole(tmp_path):
    path = tmp_path / "figure.png"
    with replacing(path) as file:
        file.write(b"this process's, ")
        other = get_context("spawn").Process(target=_write_and_go, args=(path, b"the other's"))
        other.start()
        other.join()
        assert (other.exitcode, path.read_bytes()) == (0, b"the other's")
        file.write(b"all of it")
    assert path.read_bytes() == b"this process's, all of it"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_file_that_is_not_written_to_its_end_leaves_the_old_one_and_nothing_else(tmp_path, error):
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path):
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


# Opens a file to write it, or gives a library the path of one.
WRITES = re.compile(
    r"""\.write_(text|bytes)\(|open\([^()]*["'][wxa]b?["']|to_(csv|parquet)\((?!file)"""
    r"""|(?<!Subset)\.(savefig|print_\w+|save)\((\w+, )?(path|out|beside|folder)\b"""
)


def test_all_files_are_written_by_one_function():
    root = Path(__file__).parents[2]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for folder in ("src", "reproductions")
        for path in sorted((root / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if WRITES.search(line)
    ]
    assert found == ['src/selective_backprop/_core/files.py: with fresh.open("xb") as file:']


@pytest.mark.parametrize("leads", ["to a file", "to a folder", "nowhere", "through a pipe"])
def test_what_is_in_a_file_s_place_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path, leads):
    outside, path = tmp_path / "outside", tmp_path / "runs" / "table.md"
    path.parent.mkdir()
    if leads == "to a file":
        outside.write_bytes(b"precious")
    elif leads == "to a folder":
        outside.mkdir()
    if leads != "through a pipe":
        path.symlink_to(outside)
    elif hasattr(os, "mkfifo"):
        os.mkfifo(path)
    for process in {1, os.getpid(), os.getppid()}:  # names that another could foresee
        path.with_name(f"{path.name}.{process}.new").symlink_to(outside)
    _write_and_go(path, b"fresh")
    assert (path.is_symlink(), path.read_bytes()) == (False, b"fresh")
    assert outside.exists() == (leads in ("to a file", "to a folder"))
    assert not outside.is_file() or outside.read_bytes() == b"precious"


def test_a_folder_that_you_name_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    _write_and_go(tmp_path / "runs" / "table.md", b"fresh")
    assert (tmp_path / "disk" / "table.md").read_bytes() == b"fresh"
