"""Committed pages of the study say what their records say."""

import pytest
from fixture_records import RECORDS

from reproductions.auto_study.command import read_sections
from reproductions.auto_study.page import compose
from reproductions.auto_study.protocol import STAGES, StageName

PAGES = sorted((RECORDS / "study").glob("*/index.md"))


def test_there_are_committed_pages():
    assert PAGES


@pytest.mark.parametrize("written", PAGES, ids=lambda written: written.parent.name)
def test_a_committed_page_says_what_its_records_say(written):
    stage = STAGES[StageName(written.parent.name)]
    page = compose(stage, read_sections(stage, written.parent))
    assert page.text == written.read_text(encoding="utf-8")
    assert all((written.parent / f"{section.name}.png").exists() for section in page.shown)
