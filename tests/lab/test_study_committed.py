"""Committed pages of the study say what their records say."""

from pathlib import Path

import pytest

from selective_backprop.lab.study.command import read_sections
from selective_backprop.lab.study.page import compose
from selective_backprop.lab.study.protocol import STAGES, StageName

PAGES = sorted((Path(__file__).parents[2] / "records" / "study").glob("*/index.md"))


@pytest.mark.parametrize("written", PAGES, ids=lambda written: written.parent.name)
def test_a_committed_page_says_what_its_records_say(written):
    stage = STAGES[StageName(written.parent.name)]
    page = compose(stage, read_sections(stage, written.parent))
    assert page.text == written.read_text(encoding="utf-8")
    assert all((written.parent / f"{section.name}.png").exists() for section in page.shown)
