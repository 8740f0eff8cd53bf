"""What the README and the documentation claim is what the committed records say."""

import difflib
import importlib.util
import re
from pathlib import Path

import pytest
from fixture_records import needs_records

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("evidence", ROOT / "docs" / "evidence.py")
assert spec is not None
assert spec.loader is not None
evidence = importlib.util.module_from_spec(spec)
spec.loader.exec_module(evidence)


@needs_records
@pytest.mark.parametrize("page", evidence.PAGES, ids=lambda page: page.name)
def test_every_table_is_the_one_its_records_give(page):
    text = page.read_text(encoding="utf-8")
    assert len(evidence.BLOCK.findall(text)) >= 1
    assert evidence.rewritten(text) == text


def test_the_readme_shows_the_lines_in_which_the_examples_differ():
    plain, selective = (
        (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()
        for name in ("plain", "selective")
    )
    added = [line[2:] for line in difflib.ndiff(plain, selective) if line.startswith("+ ")]
    assert not [line for line in difflib.ndiff(plain, selective) if line.startswith("- ")]
    shown = re.findall(r"^\+(.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [line for line in shown if line] == [line for line in added if line]
    assert len([line for line in added if line]) == 3


def test_every_command_in_the_readme_exists():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    scripts = set(re.findall(r"scripts/(\w+)", text))
    assert {"demo", "test"} <= scripts
    assert all((ROOT / "scripts" / name).exists() for name in scripts)
    linked = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert linked
    assert all((ROOT / target).exists() for target in linked)
